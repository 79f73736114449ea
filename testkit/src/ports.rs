//! Ports for servers that must be told theirs before they start.
//!
//! Binding `:0` and closing again would hand the port to the next outgoing connection of anyone. So ports come from
//! below the ephemeral range, and a lock file per port keeps test processes that run at the same time apart; the
//! kernel drops the lock when its holder dies, however it dies.

use std::{
    fs::{File, TryLockError},
    hash::{BuildHasher, RandomState},
    net::TcpListener,
    path::PathBuf,
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
    _lock: Option<File>,
}

impl Port {
    /// A port that nobody listens on, nor on its cluster bus port, held for this process.
    ///
    /// # Errors
    /// When the folder of locks cannot be written, or all 8,000 ports are taken.
    pub fn lease() -> Result<Self> {
        let folder = std::env::temp_dir().join("weir-ports");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let count = RANGE.end - RANGE.start;
        let start = u16::try_from(RandomState::new().hash_one(0) % u64::from(count))?;
        for step in 0..count {
            let number = RANGE.start + (start + step) % count;
            if let Some(lock) = try_lock(folder.join(number.to_string()))?
                && is_free(number)
                && is_free(number + BUS_OFFSET)
            {
                return Ok(Self { number, _lock: Some(lock) });
            }
        }
        bail!("no free port between {} and {}", RANGE.start, RANGE.end)
    }

    /// A port that the user chose.
    ///
    /// # Errors
    /// When somebody listens on it already.
    pub fn fixed(number: u16) -> Result<Self> {
        if !is_free(number) {
            bail!("port {number} on 127.0.0.1 is taken: stop what listens there, or choose another port");
        }
        Ok(Self { number, _lock: None })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn try_lock(path: PathBuf) -> Result<Option<File>> {
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
