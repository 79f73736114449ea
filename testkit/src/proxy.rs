//! A TCP proxy on loopback that breaks connections on demand.
//!
//! It does not understand what it carries: "a reply" is whatever the server sends next.

use std::{net::SocketAddr, sync::Arc, thread::JoinHandle};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::{oneshot, watch},
};

const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// The next reply of the server is dropped and its connection cut: the request was executed and nobody
    /// knows. Happens once (to one connection), then everything passes again.
    LoseReply,
    /// Carry nothing in either direction; connections stay open, and go on when it passes again.
    Stall,
    /// Cut all connections, and every new one at once.
    Refuse,
}

/// A running proxy. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and carries each connection to `target` (`"127.0.0.1:6379"`).
    pub fn start(target: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let mode = Arc::new(watch::Sender::new(Mode::Pass));
        let (end, ended) = oneshot::channel();
        let accepting = accept(listener, target.to_owned(), Arc::clone(&mode));
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! { () = accepting => {}, _ = ended => {} }
            });
        })?;
        Ok(Self { address, mode, end: Some(end), thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How connections are treated now; [`Mode::Pass`] again once a reply was lost.
    pub fn mode(&self) -> Mode {
        *self.mode.borrow()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, target: String, mode: Arc<watch::Sender<Mode>>) {
    while let Ok((client, _)) = listener.accept().await {
        if *mode.borrow() != Mode::Refuse {
            tokio::spawn(carry(client, target.clone(), Arc::clone(&mode)));
        }
    }
}

/// Carries one connection until either side closes it or the mode cuts it.
async fn carry(client: TcpStream, target: String, mode: Arc<watch::Sender<Mode>>) {
    let Ok(server) = TcpStream::connect(&target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let mut refused = mode.subscribe();
    tokio::select! {
        () = requests(client_reads, server_writes, mode.subscribe()) => {}
        () = replies(server_reads, client_writes, &mode) => {}
        _ = refused.wait_for(|mode| *mode == Mode::Refuse) => {}
    }
}

async fn requests(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut chunk).await {
        let moving = mode.wait_for(|mode| *mode != Mode::Stall).await.is_ok();
        if !moving || to.write_all(&chunk[..bytes]).await.is_err() {
            return;
        }
    }
}

async fn replies(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, mode: &watch::Sender<Mode>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut watched = mode.subscribe();
    while let Ok(bytes @ 1..) = from.read(&mut chunk).await {
        let moving = watched.wait_for(|mode| *mode != Mode::Stall).await.is_ok();
        // Taken back in the same step, so that one connection alone loses its reply.
        let lost = mode.send_if_modified(|mode| {
            let loses = *mode == Mode::LoseReply;
            if loses {
                *mode = Mode::Pass;
            }
            loses
        });
        if lost || !moving || to.write_all(&chunk[..bytes]).await.is_err() {
            return;
        }
    }
}
