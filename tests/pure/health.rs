//! `weir health` asks a worker over loopback and tells in one line.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    thread::JoinHandle,
};

use crate::{program::run, support::DEADLINE};
use testkit::wait_until;

/// Answers one request with `answer`, or never if there is none; gives the address and the request's first line.
fn once(answer: Option<&'static str>) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        match answer {
            Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
            // Until the client has given up.
            None => drop(stream.read(&mut request)),
        }
        String::from_utf8_lossy(&request[..length]).lines().next().unwrap_or_default().to_owned()
    });
    (address, served)
}

/// The first line of the request that was answered.
fn asked(served: JoinHandle<String>) -> String {
    wait_until(DEADLINE, "somebody asks", || served.is_finished());
    served.join().unwrap()
}

fn health(args: &[&str]) -> (i32, String, String) {
    run(Path::new("."), &[&["health"], args].concat(), &[])
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nready\n";
const NOT_READY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\r\n{\"status\":503,\"detail\":\"lane 0 waits for its partitions\"}";

#[test]
fn a_worker_that_is_as_asked_is_0_and_one_that_is_not_1() {
    let (address, served) = once(Some(OK));
    let url = format!("http://{address}");
    assert_eq!(health(&["--ready", "--url", &url]), (0, "ready\n".to_owned(), String::new()));
    assert_eq!(asked(served), "GET /readyz HTTP/1.1");

    let (address, served) = once(Some(NOT_READY));
    let (code, out, err) = health(&["--url", &format!("http://{address}")]);
    let expected = format!("weir: http://{address}/livez: 503 lane 0 waits for its partitions\n");
    assert_eq!((code, out, err), (1, String::new(), expected));
    assert_eq!(asked(served), "GET /livez HTTP/1.1");
}

#[test]
fn a_worker_that_does_not_answer_is_1() {
    let (address, served) = once(None);
    let (code, _, err) = health(&["--timeout", "200ms", "--url", &format!("http://{address}")]);
    assert_eq!((code, err), (1, format!("weir: http://{address}/livez: no answer within 200ms\n")));
    asked(served);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, _, err) = health(&["--url", &format!("http://{free}")]);
    assert!(code == 1 && err.contains("no answer: Connection refused"), "{err}");
}

#[test]
fn the_address_is_that_of_the_configuration_and_nothing_else_need_be_right_in_it() {
    let folder = testkit::folder();
    let config = folder.path().join("weir.toml");
    let (address, served) = once(Some(OK));
    let port = address.rsplit(':').next().unwrap();
    std::fs::write(&config, format!("[http]\nlisten = \"0.0.0.0:{port}\"\ntoken_file = \"absent\"")).unwrap();
    let config = config.display().to_string();
    assert_eq!(health(&["--config", &config]).0, 0);
    asked(served);
    std::fs::write(&config, "[http]\nlisten = \"127.0.0.1:0\"").unwrap();
    let (code, _, err) = health(&["--config", &config]);
    assert!(code == 2 && err.contains("--url"), "{err}");
    assert_eq!(health(&["--url", "https://localhost"]).0, 2);
}
