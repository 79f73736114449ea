//! A proxy in front of a broker that knows Kafka's requests from one another, and lets one of them go wrong.
//!
//! Clients stay with it, because the broker has a listener that advertises the tap's address. Only the head of a frame
//! is read: <https://kafka.apache.org/protocol#protocol_common>.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use anyhow::Result;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};

use crate::{
    background::{Background, Way, connect},
    ports::Port,
    process::{Signal, send},
};

/// A kind of request, by its number in the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Records to a partition.
    Produce = 0,
    /// A member of a group is alive.
    Heartbeat = 12,
    /// Offsets join the open transaction.
    SendOffsets = 28,
    /// The transaction is to be committed or aborted.
    EndTransaction = 26,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The broker has not seen the request.
    Request,
    /// The broker has carried it out; its client has not heard.
    Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The process with this id, which the caller keeps from ending otherwise, is killed with SIGKILL, and the
    /// connection is cut.
    Kill(i32),
    Cut,
    /// Nothing is carried in this direction until [`Tap::disarm`].
    Hold,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trap {
    pub api: Api,
    pub moment: Moment,
    pub fate: Fate,
}

#[derive(Debug, Default)]
struct State {
    armed: Option<Trap>,
    sprung: bool,
    holding: bool,
}

/// A running tap. Dropping it cuts all connections.
#[derive(Debug)]
pub struct Tap {
    server: Background,
    state: Arc<watch::Sender<State>>,
}

impl Tap {
    /// Listens on `port` and carries each connection to `target` (`"127.0.0.1:9092"`).
    pub(super) fn start(port: &Port, target: String) -> Result<Self> {
        let state = Arc::new(watch::Sender::new(State::default()));
        let set = Arc::clone(&state);
        let carries = move |client| carry(client, target.clone(), Arc::clone(&set));
        Ok(Self { server: Background::start("tap", port.number(), carries)?, state })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Sets a trap, which replaces one that was not sprung.
    pub fn arm(&self, trap: Trap) {
        self.state.send_modify(|state| (state.armed, state.sprung, state.holding) = (Some(trap), false, false));
    }

    /// Whether the trap that was set last has gone off.
    pub fn is_sprung(&self) -> bool {
        self.state.borrow().sprung
    }

    /// Removes the trap, and releases held requests.
    pub fn disarm(&self) {
        self.state.send_modify(|state| (state.armed, state.holding) = (None, false));
    }
}

/// No correlation id.
const NONE: i64 = i64::MAX;

/// Carries one connection until either side closes it or a trap cuts it.
async fn carry(client: TcpStream, target: String, state: Arc<watch::Sender<State>>) {
    let Some((there, back)) = connect(client, &target).await else { return };
    // The request whose reply is waited for.
    let awaited = AtomicI64::new(NONE);
    tokio::select! {
        _ = requests(there, &state, &awaited) => {}
        _ = replies(back, &state, &awaited) => {}
    }
}

/// Length, kind, version, correlation id, then the rest of the request.
async fn requests((mut from, mut to): Way, state: &watch::Sender<State>, awaited: &AtomicI64) -> std::io::Result<()> {
    loop {
        let mut head = [0; 12];
        from.read_exact(&mut head).await?;
        let [l0, l1, l2, l3, a0, a1, _, _, c0, c1, c2, c3] = head;
        let length = u64::from(u32::from_be_bytes([l0, l1, l2, l3]));
        if let Some((moment, fate)) = spring(state, i16::from_be_bytes([a0, a1])) {
            match moment {
                Moment::Reply => awaited.store(i32::from_be_bytes([c0, c1, c2, c3]).into(), Ordering::Relaxed),
                Moment::Request => suffer(state, fate).await?,
            }
        }
        to.write_all(&head).await?;
        tokio::io::copy(&mut (&mut from).take(length.saturating_sub(8)), &mut to).await?;
    }
}

/// Length, correlation id, then the rest of the reply.
async fn replies((mut from, mut to): Way, state: &watch::Sender<State>, awaited: &AtomicI64) -> std::io::Result<()> {
    loop {
        let mut head = [0; 8];
        from.read_exact(&mut head).await?;
        let [l0, l1, l2, l3, c0, c1, c2, c3] = head;
        let length = u64::from(u32::from_be_bytes([l0, l1, l2, l3]));
        if awaited.load(Ordering::Relaxed) == i64::from(i32::from_be_bytes([c0, c1, c2, c3])) {
            awaited.store(NONE, Ordering::Relaxed);
            let trap = state.borrow().armed;
            if let Some(trap) = trap {
                state.send_modify(|state| (state.armed, state.sprung) = (None, true));
                suffer(state, trap.fate).await?;
            }
        }
        to.write_all(&head).await?;
        tokio::io::copy(&mut (&mut from).take(length.saturating_sub(4)), &mut to).await?;
    }
}

/// Whether a request of this kind is the one to go wrong. A trap for a reply stays set until the reply is there.
fn spring(state: &watch::Sender<State>, api: i16) -> Option<(Moment, Fate)> {
    let trap = state.borrow().armed.filter(|trap| trap.api as i16 == api)?;
    if trap.moment == Moment::Request {
        state.send_modify(|state| (state.armed, state.sprung) = (None, true));
    }
    Some((trap.moment, trap.fate))
}

/// An error cuts the connection.
async fn suffer(state: &watch::Sender<State>, fate: Fate) -> std::io::Result<()> {
    match fate {
        Fate::Kill(pid) => {
            send(pid, Signal::KILL);
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
        Fate::Cut => Err(std::io::ErrorKind::ConnectionReset.into()),
        Fate::Hold => {
            state.send_modify(|state| state.holding = true);
            let _ = state.subscribe().wait_for(|state| !state.holding).await;
            Ok(())
        }
    }
}
