//! Ports for servers that must be told theirs before they start.
//!
//! Binding `:0` and closing again would hand the port to the next outgoing connection of anyone. So ports come from
//! below the ephemeral range, and whoever leases one holds the UDP port of its number, which no server here uses: that
//! keeps test processes that run at the same time apart. The kernel takes it back when its holder ends, however it ends.

use std::{
    hash::{BuildHasher, RandomState},
    io::ErrorKind,
    net::{TcpListener, UdpSocket},
};

use anyhow::{Context, Result, bail};

/// The ports leased. With [`BUS_OFFSET`] added they still lie below Linux's ephemeral range (32768 and up).
const RANGE: std::ops::Range<u16> = 12_000..20_000;

/// A Redis Cluster node's bus listens this far above its port.
const BUS_OFFSET: u16 = 10_000;

/// A port that is ours until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _held: Option<UdpSocket>,
}

impl Port {
    /// A port that nobody listens on, nor on its cluster bus port, held for this process.
    pub fn lease() -> Result<Self> {
        let count = RANGE.end - RANGE.start;
        let start = u16::try_from(RandomState::new().hash_one(0) % u64::from(count))?;
        for step in 0..count {
            let number = RANGE.start + (start + step) % count;
            if let Some(held) = hold(number)?
                && is_free(number)
                && is_free(number + BUS_OFFSET)
            {
                return Ok(Self { number, _held: Some(held) });
            }
        }
        bail!("no free port between {} and {}", RANGE.start, RANGE.end)
    }

    /// A port that the user chose.
    pub fn fixed(number: u16) -> Result<Self> {
        if !is_free(number) {
            bail!("port {number} on 127.0.0.1 is taken: stop what listens there, or choose another port");
        }
        Ok(Self { number, _held: None })
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Holds a port against other processes; `None` where one holds it.
fn hold(number: u16) -> Result<Option<UdpSocket>> {
    match UdpSocket::bind(("127.0.0.1", number)) {
        Ok(held) => Ok(Some(held)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot hold port {number} on 127.0.0.1")),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
