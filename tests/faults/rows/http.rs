//! Hostile clients of the HTTP interface. Row 26.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use tokio::io::AsyncWriteExt as _;

use super::*;

/// Connections held open at once.
const CONNECTIONS: usize = 10_000;
/// Connections that send half a request.
const SLOW: usize = 500;
/// Requests with an invalid token.
const BAD_TOKENS: usize = 500;
const BAD_TOKEN: &str =
    "GET /v1/users/1 HTTP/1.1\r\nhost: w\r\nauthorization: Bearer wrong\r\nconnection: close\r\n\r\n";
const HUGE: &str = "POST /v1/decisions HTTP/1.1\r\nhost: w\r\nauthorization: Bearer right-token-0123456789\r\n\
                    content-type: application/json\r\ncontent-length: 10000000000\r\n\r\n";
/// How long a client waits for its connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much more memory all attacks together may take.
const MORE_MIB: u64 = 100;

pub fn attacked(ground: &mut Ground, order: &Order) -> Result<Findings> {
    limits::limit(std::process::id(), &format!("nofile={}:", CONNECTIONS + 1_000))?;
    let (mut trial, worker) =
        plain(ground, order, "http")?.at_work("only", &[("WEIR__HTTP__TOKEN", "right-token-0123456789")])?;
    trial.decided(500)?;
    let pid = trial.worker(worker).pid();
    let before = limits::figure(pid, "VmRSS:")?;
    for _ in 0..order.times {
        let address = address(trial.worker(worker));
        let mark = trial.over()?;
        // Bad tokens and a huge body first, while there is room; then all connections, the first of them slow.
        let answers = (0..BAD_TOKENS).map(|_| ask(&address, BAD_TOKEN, 0));
        let refused = answers.filter(|said| said.contains(" 401 ") || said.contains(" 429 ")).count();
        let huge = ask(&address, HUGE, 4 << 20);
        let connections = crowd(&address);
        let open = connections.len();
        // While they are there: the lanes do not feel it.
        trial.back(&mark)?;
        trial.comes_back()?;
        let more = limits::figure(pid, "VmRSS:")?.saturating_sub(before) / 1024;
        ensure!(more < MORE_MIB, "{more} MiB more are taken");
        drop(connections);
        trial.until_of(worker, "it answers again", |worker| get(worker, "/livez").0 == 200)?;
        ensure!(refused == BAD_TOKENS, "{refused} of {BAD_TOKENS} bad tokens were refused");
        ensure!(huge.contains(" 413 ") || huge.contains(" 401 "), "a huge body is answered {huge:?}");
        trial.note(format!(
            "{open} of {CONNECTIONS} connections at once, {refused} of {BAD_TOKENS} bad tokens refused, {more} MiB more"
        ));
    }
    trial.live(worker, Duration::ZERO)?;
    trial.finish(order.times)
}

/// Opens all connections at once; the kernel queues some and rejects others.
fn crowd(address: &str) -> Vec<TcpStream> {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    runtime.block_on(async {
        let mut tries = tokio::task::JoinSet::new();
        for number in 0..CONNECTIONS {
            let address = address.to_owned();
            tries.spawn(async move {
                let connecting = tokio::net::TcpStream::connect(address);
                let mut stream = tokio::time::timeout(PATIENCE, connecting).await.ok()?.ok()?;
                if number < SLOW {
                    let half = stream.write_all(b"GET /metrics HTTP/1.1\r\nx-slow: ");
                    let _ = tokio::time::timeout(PATIENCE, half).await;
                }
                stream.into_std().ok()
            });
        }
        tries.join_all().await.into_iter().flatten().collect()
    })
}

/// Sends a head and so many bytes; returns the first line of the answer.
fn ask(address: &str, head: &str, body_bytes: usize) -> String {
    let connected = address.parse().map(|address| TcpStream::connect_timeout(&address, PATIENCE));
    let Ok(Ok(mut stream)) = connected else { return "no connection".to_owned() };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let _ = stream.set_write_timeout(Some(Duration::from_secs(10)));
    let _ = stream.write_all(head.as_bytes());
    // It may be cut off before all is sent; the answer counts.
    let _ = stream.write_all(&vec![b' '; body_bytes]);
    let mut answer = [0; 256];
    let taken = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..taken]).lines().next().unwrap_or_default().to_owned()
}
