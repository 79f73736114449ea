//! Children end with the process that started them, even when that gets no chance to do anything.

use std::{os::unix::process::parent_id, path::Path, process::Command, time::Duration};

use testkit::{
    process::{Exit, Guarded, Signal, output, run_beside_parent},
    redis::RedisServer,
    scratch::Scratch,
    wait_for, wait_until,
};

const SOON: Duration = Duration::from_secs(20);
/// Set for the copy of this test binary that plays the owner; the file it writes its children to.
const OWNER: &str = "WEIR_TEST_OWNER_FILE";
/// Set for the copy that runs a command beside its parent; the file that the command writes its id to.
const RUNNER: &str = "WEIR_TEST_RUNNER_FILE";

/// Whether a process runs. A zombie that nobody has collected has no command line.
fn runs(pid: &str) -> bool {
    std::fs::read(Path::new("/proc").join(pid).join("cmdline")).is_ok_and(|line| !line.is_empty())
}

/// The id that a process has written to a file, and `end` behind it.
fn written(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok()?.strip_suffix(" end\n").map(str::to_owned)
}

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
    let child = wait_for(SOON, || written(&child)).expect("the parent started its child");
    // One that is about to become its program has no command line, either.
    wait_until(SOON, "the child runs", || runs(&child));
    parent.kill();
    wait_until(SOON, "the child is gone", || !runs(&child));

    let mut sleeper = Guarded::spawn("sleep", Command::new("sleep").arg("1000"), &log).unwrap();
    assert!(sleeper.wait_exit(Duration::ZERO).is_err());
    sleeper.signal(Signal::TERM);
    assert_eq!(sleeper.wait_exit(SOON).unwrap(), Exit::Signal(15));
}

#[test]
fn a_command_that_runs_beside_a_parent_ends_with_it() {
    if let Some(file) = std::env::var_os(RUNNER) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ end >\"$0\"; exec sleep 1000"]).arg(file);
        run_beside_parent(parent_id(), &mut command).unwrap_err();
        return;
    }
    let scratch = Scratch::new("runner").unwrap();
    let file = scratch.join("command");
    // A parent that ends as soon as the command runs.
    let script = format!("\"$0\" \"$@\" >/dev/null 2>&1 & until [ -s \"${RUNNER}\" ]; do sleep 0.1; done");
    let mut parent = Command::new("/bin/sh");
    parent.args(["-c", &script]).arg(std::env::current_exe().unwrap());
    parent.args(["ends_with_its_owner::a_command_that_runs_beside_a_parent_ends_with_it", "--exact"]);
    assert!(output(parent.env(RUNNER, &file)).unwrap().status.success());
    let command = wait_for(SOON, || written(&file)).expect("the command has started");
    wait_until(SOON, "the command is gone", || !runs(&command));

    let mut late = Command::new("sleep");
    let ended = run_beside_parent(parent_id() + 1, late.arg("1000")).unwrap_err().to_string();
    assert!(ended.contains("the process that started this one has ended"), "{ended}");

    let status = run_beside_parent(parent_id(), Command::new("/bin/sh").args(["-c", "exit 3"])).unwrap();
    assert_eq!(status.code(), Some(3));
}
