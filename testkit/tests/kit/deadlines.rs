//! Commands and requests end at their deadline.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::Command,
    time::Duration,
};

use testkit::{
    http,
    process::{output, output_given, output_within},
    wait_until,
};

/// Long enough for a shell to start.
const SOON: Duration = Duration::from_secs(2);

fn sh(script: &str) -> Command {
    let mut sh = Command::new("/bin/sh");
    sh.args(["-c", script]);
    sh
}

#[test]
fn a_command_gives_its_status_and_what_it_printed() {
    let ended = output(&mut sh("echo out; echo err >&2; cat; exit 3")).unwrap();
    assert_eq!((ended.status.code(), &ended.stdout[..], &ended.stderr[..]), (Some(3), &b"out\n"[..], &b"err\n"[..]));
    // More than a pipe holds, in both directions.
    let input = vec![b'x'; 1 << 20];
    assert_eq!(output_given(input.clone(), &mut Command::new("cat")).unwrap().stdout, input);
    assert!(output_given(input, &mut sh("exec true")).unwrap().status.success(), "a command need not read all");
    let error = output(&mut Command::new("/nowhere/at-all")).unwrap_err();
    assert!(format!("{error:#}").contains("/nowhere/at-all"), "{error:#}");
}

#[test]
fn a_command_that_never_ends_is_killed_at_its_deadline_and_named() {
    let error = output_within(SOON, &mut sh("echo pid $$ end; echo complaint >&2; exec sleep 1000")).unwrap_err();
    let error = error.to_string();
    for part in ["exec sleep 1000", "2s", "complaint"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let (_, pid) = error.rsplit_once("pid ").unwrap();
    let (pid, _) = pid.split_once(" end").unwrap();
    assert!(!Path::new("/proc").join(pid).exists(), "process {pid} still runs");
}

#[test]
fn a_process_that_a_command_leaves_behind_is_not_waited_for() {
    let ended = output(&mut sh("sleep 1000 & echo $!")).unwrap();
    let pid = String::from_utf8(ended.stdout).unwrap().trim().to_owned();
    let process = Path::new("/proc").join(&pid);
    assert!(process.exists(), "process {pid} was waited for");
    assert!(output(Command::new("kill").args(["-9", &pid])).unwrap().status.success());
}

#[test]
fn a_server_that_never_answers_or_stops_half_way_is_an_error() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let half = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = [&silent, &half].map(|server| format!("http://{}/path", server.local_addr().unwrap()));
    let answered = std::thread::spawn(move || {
        let (mut stream, _) = half.accept().unwrap();
        stream.set_read_timeout(Some(SOON * 10)).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").unwrap();
        // Until the client hangs up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for (url, what) in urls.iter().zip(["no answer", "no whole answer"]) {
        let error = format!("{:#}", http::get_within(SOON, url).unwrap_err());
        assert!(error.contains(&format!("GET {url}: {what}")) && error.contains("timeout"), "{error}");
    }
    wait_until(SOON * 5, "the client hangs up", || answered.is_finished());
}
