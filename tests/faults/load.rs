//! The load: a thread that publishes seeded intents at a steady rate, whatever happens to the brokers.

use std::{
    sync::mpsc::{Sender, TryRecvError, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use testkit::kafka::KafkaClient;

use crate::support::{model::Sent, workload};

/// The time between two groups of intents.
const TICK: Duration = Duration::from_millis(20);

/// The rate and size of a load.
#[derive(Debug, Clone, Copy)]
pub struct LoadRate {
    /// At once, at the start.
    pub backlog: usize,
    pub a_second: u32,
    pub padding: usize,
}

/// A running load. It ends when dropped.
#[derive(Debug)]
pub struct Load {
    running: Sender<()>,
    thread: JoinHandle<Result<Vec<Sent>>>,
}

impl Load {
    pub fn start(
        kafka: &KafkaClient,
        topic: &str,
        mut stream: impl Iterator<Item = Sent> + Send + 'static,
        pace: LoadRate,
    ) -> Result<Self> {
        let publisher = kafka.publisher(topic)?;
        let (running, end) = channel();
        let thread = std::thread::Builder::new().name("load".to_owned()).spawn(move || {
            let mut all = Vec::new();
            let start = Instant::now();
            while end.try_recv() == Err(TryRecvError::Empty) {
                let due = pace.backlog + (start.elapsed().as_secs_f64() * f64::from(pace.a_second)) as usize;
                while all.len() < due {
                    let Some(sent) = stream.next() else { break };
                    publisher.send(&workload::padded(&sent, pace.padding))?;
                    all.push(sent);
                }
                publisher.serve(Instant::now() + TICK);
            }
            publisher.finish()?;
            Ok(all)
        })?;
        Ok(Self { running, thread })
    }

    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends it and returns the published intents in order, all acknowledged by the brokers.
    pub fn stop(self) -> Result<Vec<Sent>> {
        drop(self.running);
        self.thread.join().map_err(|_| anyhow!("the load panicked"))?
    }
}
