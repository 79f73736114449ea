//! Children end with the process that started them, even when that gets no chance to do anything.

use std::{path::Path, process::Command, time::Duration};

use testkit::{
    process::{Exit, Guarded, Signal},
    redis::RedisServer,
    scratch::Scratch,
    wait_for, wait_until,
};

const SOON: Duration = Duration::from_secs(20);
/// Set for the copy of this test binary that plays the owner; the file it writes its children to.
const OWNER: &str = "WEIR_TEST_OWNER_FILE";

#[test]
fn servers_and_folders_of_a_killed_owner_go_away() {
    if let Some(file) = std::env::var_os(OWNER) {
        return own_a_server_until_killed(Path::new(&file));
    }
    let scratch = Scratch::new("owner").unwrap();
    let file = scratch.join("children");
    let mut owner = Command::new(std::env::current_exe().unwrap());
    owner.args(["ends_with_its_owner::servers_and_folders_of_a_killed_owner_go_away", "--exact"]).env(OWNER, &file);
    let mut owner = Guarded::spawn("the owner", &owner, &scratch.join("log")).unwrap();
    let children = wait_for(SOON, || std::fs::read_to_string(&file).ok().filter(|text| text.ends_with("end")));
    let children = children.expect("the owner started its children");
    let mut words = children.split(' ');
    let (server, folder) = (words.next().unwrap(), Path::new(words.next().unwrap()));
    let process = Path::new("/proc").join(server);
    assert!(process.exists() && folder.exists());
    owner.kill();
    wait_until(SOON, "the server is gone", || !process.exists());
    wait_until(SOON, "the folder is gone", || !folder.exists());
}

fn own_a_server_until_killed(file: &Path) {
    let mut server = RedisServer::start::<&str>(&[]).expect("a server starts");
    // A frozen one would not notice anything by itself.
    server.freeze();
    let folder = Scratch::new("owned").expect("a folder is made");
    let children = format!("{} {} end", server.pid().unwrap_or_default(), folder.path().display());
    std::fs::write(file, children).expect("the file is written");
    wait_until(SOON * 3, "we are killed", || false);
}

#[test]
fn exits_are_told_apart() {
    let scratch = Scratch::new("exits").unwrap();
    let log = scratch.join("log");
    for (script, exit) in
        [("exit 0", Exit::Code(0)), ("echo what happened >&2; exit 2", Exit::Code(2)), ("kill -9 $$", Exit::Signal(9))]
    {
        let mut command = Command::new("/bin/sh");
        let mut process = Guarded::spawn("a script", command.args(["-c", script]), &log).unwrap();
        assert_eq!(process.wait_exit(SOON).unwrap(), exit, "{script}");
    }
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "what happened\n");

    // The processes that it has started end with it.
    let child = scratch.join("child");
    let mut parent = Command::new("/bin/sh");
    parent.args(["-c", "sleep 1000 & echo $! end >\"$0\"; wait"]).arg(&child);
    let mut parent = Guarded::spawn("a parent", &parent, &log).unwrap();
    let pid = || std::fs::read_to_string(&child).ok()?.strip_suffix(" end\n").map(str::to_owned);
    let child = Path::new("/proc").join(wait_for(SOON, pid).expect("the parent started its child")).join("cmdline");
    // A zombie that nobody has collected has no command line.
    let runs = || std::fs::read(&child).is_ok_and(|line| !line.is_empty());
    // Nor has one that is about to become its program.
    wait_until(SOON, "the child runs", runs);
    parent.kill();
    wait_until(SOON, "the child is gone", || !runs());

    let mut sleeper = Guarded::spawn("sleep", Command::new("sleep").arg("1000"), &log).unwrap();
    assert!(sleeper.wait_exit(Duration::ZERO).is_err());
    sleeper.signal(Signal::Term);
    assert_eq!(sleeper.wait_exit(SOON).unwrap(), Exit::Signal(15));
}
