//! How a node is reached and how time passes while it is waited for: the seam at which the simulation puts a cluster
//! of its own under the same logic.

use std::{
    fmt::Debug,
    pin::Pin,
    sync::LazyLock,
    time::{Duration, Instant},
};

use redis::{Pipeline, RedisResult, Value, aio::MultiplexedConnection};

use super::{address::NodeAddr, node::connect, options::RedisOptions};

pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes connections, and waits between tries.
pub trait Network: Debug + Send + Sync {
    /// Connects to a node, within the options' `connect_timeout`.
    fn connect<'a>(&'a self, addr: &'a NodeAddr, options: &'a RedisOptions) -> Boxed<'a, RedisResult<Box<dyn Link>>>;

    fn sleep(&self, wait: Duration) -> Boxed<'static, ()>;

    /// Time passed since some fixed moment; never goes back.
    fn passed(&self) -> Duration;
}

pub trait Link: Send {
    /// Sends the commands of a pipeline and gives one value each, an error reply as [`Value::ServerError`]; within the
    /// options' `response_timeout`. An error means that any of them may have been carried out.
    fn send<'a>(&'a mut self, pipeline: &'a Pipeline) -> Boxed<'a, RedisResult<Vec<Value>>>;
}

/// The moment from which [`Tcp`] counts.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// TCP, with or without TLS, and the runtime's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Network for Tcp {
    fn connect<'a>(&'a self, addr: &'a NodeAddr, options: &'a RedisOptions) -> Boxed<'a, RedisResult<Box<dyn Link>>> {
        Box::pin(async move {
            let connection = connect(addr, options).await?;
            Ok(Box::new(connection) as Box<dyn Link>)
        })
    }

    fn sleep(&self, wait: Duration) -> Boxed<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }

    fn passed(&self) -> Duration {
        START.elapsed()
    }
}

impl Link for MultiplexedConnection {
    fn send<'a>(&'a mut self, pipeline: &'a Pipeline) -> Boxed<'a, RedisResult<Vec<Value>>> {
        Box::pin(self.send_packed_commands(pipeline, 0, pipeline.len()))
    }
}
