//! The published method: a Bloom filter a minute, thirty of them, all under one key.
//!
//! Once a second an instance reads the key, adds the bits of others to its own and its own to theirs, and writes all of it back,
//! compressed, unless the key was changed meanwhile. After some conflicts it gives up until the next second.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "turns are taken by the true time; the load and the turns share the filters"
)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{JoinHandle, sleep},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use miniz_oxide::{deflate::compress_to_vec, inflate::decompress_to_vec};
use redis::{Connection, Value};
use testkit::redis::{LONGEST_REPLY, RedisServer, connect};
use weir_core::{
    limit::pressure::activity::{ActivityHash, Minute},
    ports::Clock as _,
};
use weir_worker::clock::SystemClock;

use super::{Instance, Load, Running, user};

const KEY: &str = "filters";
const MINUTES: i64 = 30;
/// A filter of all minutes together has room for the maximum at 1% wrong answers: so many bits a user, and hashes.
const BITS_A_USER: u64 = 10;
const HASHES: u64 = 7;
/// As gzip compresses unless told otherwise.
const LEVEL: u8 = 6;
const TURN: Duration = Duration::from_secs(1);
const TRIES: usize = 3;

struct Filters {
    bits: u64,
    by_minute: BTreeMap<i64, Vec<u8>>,
    /// The estimate after the last turn, and the users who were admitted since.
    active: u64,
}

impl Filters {
    fn new(most: u32) -> Self {
        Self { bits: u64::from(most) * BITS_A_USER, by_minute: BTreeMap::new(), active: 0 }
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.bits.div_ceil(8)).unwrap_or(usize::MAX)
    }

    /// The bits of a user: bytes and masks.
    fn places(&self, user: ActivityHash) -> impl Iterator<Item = (usize, u8)> + use<> {
        let (bits, step) = (self.bits, user.0.rotate_left(32) | 1);
        (0..HASHES).map(move |hash| {
            let bit = user.0.wrapping_add(hash.wrapping_mul(step)) % bits;
            (usize::try_from(bit / 8).unwrap_or(0), 1 << (bit % 8))
        })
    }

    fn add(&mut self, user: ActivityHash, minute: i64) {
        let (places, bytes) = (self.places(user), self.bytes());
        let filter = self.by_minute.entry(minute).or_insert_with(|| vec![0; bytes]);
        places.for_each(|(byte, mask)| filter[byte] |= mask);
    }

    fn has(&self, user: ActivityHash) -> bool {
        let is_in = |filter: &Vec<u8>| self.places(user).all(|(byte, mask)| filter[byte] & mask != 0);
        self.by_minute.values().any(is_in)
    }

    fn merge(&mut self, blob: &[u8]) {
        let (head, bytes) = (size_of::<i64>(), self.bytes());
        for part in blob.chunks_exact(head + bytes) {
            let Some((minute, bits)) = part.split_first_chunk() else { continue };
            let own = self.by_minute.entry(i64::from_be_bytes(*minute)).or_insert_with(|| vec![0; bytes]);
            own.iter_mut().zip(bits).for_each(|(own, bits)| *own |= bits);
        }
        let now = minute();
        self.by_minute.retain(|minute, _| *minute > now - MINUTES);
        let mut all = vec![0_u8; bytes];
        for filter in self.by_minute.values() {
            all.iter_mut().zip(filter).for_each(|(all, bits)| *all |= bits);
        }
        let set: u64 = all.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let bits = self.bits as f64;
        self.active = (-(bits / HASHES as f64) * (-(set as f64).min(bits - 1.0) / bits).ln_1p()).round() as u64;
    }

    fn blob(&self) -> Vec<u8> {
        self.by_minute.iter().flat_map(|(minute, bits)| minute.to_be_bytes().into_iter().chain(bits.clone())).collect()
    }
}

fn minute() -> i64 {
    Minute::from(SystemClock.now()).0
}

struct One {
    most: u64,
    filters: Mutex<Filters>,
}

impl One {
    fn lock(&self) -> MutexGuard<'_, Filters> {
        self.filters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(&self, connection: &mut Connection) -> Result<()> {
        for _ in 0..TRIES {
            redis::cmd("WATCH").arg(KEY).exec(connection)?;
            let stored: Option<Vec<u8>> = redis::cmd("GET").arg(KEY).query(connection)?;
            let stored = stored.map(|stored| decompress_to_vec(&stored)).transpose();
            let stored = stored.map_err(|error| anyhow!("the filters: {error:?}"))?;
            let blob = {
                let mut filters = self.lock();
                filters.merge(&stored.unwrap_or_default());
                filters.blob()
            };
            let compressed = compress_to_vec(&blob, LEVEL);
            redis::cmd("MULTI").exec(connection)?;
            redis::cmd("SET").arg(KEY).arg(compressed).exec(connection)?;
            if redis::cmd("EXEC").query::<Value>(connection)? != Value::Nil {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Instance for One {
    fn is_active(&self, user: ActivityHash) -> bool {
        self.lock().has(user)
    }

    fn touch(&self, user: ActivityHash) {
        self.lock().add(user, minute());
    }

    fn admit(&self, user: ActivityHash) -> bool {
        let mut filters = self.lock();
        let is_active = filters.has(user);
        if !is_active && filters.active >= self.most {
            return false;
        }
        filters.active += u64::from(!is_active);
        filters.add(user, minute());
        true
    }
}

pub struct Published {
    stop: Arc<AtomicBool>,
    instances: Vec<Arc<One>>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Running for Published {
    fn start(server: &RedisServer, load: &Load, instances: usize) -> Result<Self> {
        let mut known = Filters::new(load.most());
        for (ago, users) in load.known() {
            users.into_iter().for_each(|number| known.add(user(number), minute() - ago));
        }
        let client = redis::Client::open(server.url())?;
        let compressed = compress_to_vec(&known.blob(), LEVEL);
        redis::cmd("SET").arg(KEY).arg(compressed).exec(&mut connect(LONGEST_REPLY, &client)?)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (mut shared, mut threads) = (Vec::new(), Vec::new());
        for _ in 0..instances {
            let filters = Mutex::new(Filters::new(load.most()));
            let one = Arc::new(One { most: load.most().into(), filters });
            let (mut connection, stop, its) = (connect(LONGEST_REPLY, &client)?, Arc::clone(&stop), Arc::clone(&one));
            one.sync(&mut connection)?;
            threads.push(std::thread::spawn(move || {
                let mut next = Instant::now() + TURN;
                while !stop.load(Ordering::Relaxed) {
                    sleep(next.saturating_duration_since(Instant::now()));
                    // As weir does: a turn that takes long moves the next one.
                    next = Instant::now() + TURN;
                    its.sync(&mut connection)?;
                }
                Ok(())
            }));
            shared.push(one);
            sleep(TURN / u32::try_from(instances)?);
        }
        sleep(2 * TURN);
        Ok(Self { stop, instances: shared, threads })
    }

    fn instances(&self) -> Vec<&dyn Instance> {
        self.instances.iter().map(|one| -> &dyn Instance { &**one }).collect()
    }

    fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("an instance has failed"))??;
        }
        Ok(())
    }
}
