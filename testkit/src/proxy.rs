//! A TCP proxy on loopback that breaks connections on demand.
//!
//! It does not understand what it carries: "a reply" is whatever the server sends next.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use crate::background::{Background, Way, connect};

const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// The next reply of the server is dropped and its connection cut: the request was executed and nobody
    /// knows. Happens once (to one connection), then everything passes again.
    LoseReply,
    /// Carry nothing in either direction; connections stay open, and go on when it passes again.
    Stall,
}

/// A running proxy. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Proxy {
    server: Background,
    mode: Arc<watch::Sender<Mode>>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and carries each connection to `target` (`"127.0.0.1:6379"`).
    pub fn start(target: &str) -> Result<Self> {
        let mode = Arc::new(watch::Sender::new(Mode::Pass));
        let (target, set) = (target.to_owned(), Arc::clone(&mode));
        let server = Background::start("proxy", 0, move |client| carry(client, target.clone(), Arc::clone(&set)))?;
        Ok(Self { server, mode })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How connections are treated now; [`Mode::Pass`] again once a reply was lost.
    pub fn mode(&self) -> Mode {
        *self.mode.borrow()
    }
}

/// Carries one connection until either side closes it or it loses a reply.
async fn carry(client: TcpStream, target: String, mode: Arc<watch::Sender<Mode>>) {
    let Some((there, back)) = connect(client, &target).await else { return };
    tokio::select! {
        () = requests(there, mode.subscribe()) => {}
        () = replies(back, &mode) => {}
    }
}

async fn requests((mut from, mut to): Way, mut mode: watch::Receiver<Mode>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(bytes @ 1..) = from.read(&mut chunk).await {
        let moving = mode.wait_for(|mode| *mode != Mode::Stall).await.is_ok();
        if !moving || to.write_all(&chunk[..bytes]).await.is_err() {
            return;
        }
    }
}

async fn replies((mut from, mut to): Way, mode: &watch::Sender<Mode>) {
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
