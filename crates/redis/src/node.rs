//! One node: its connection, the scripts it knows, and one pipeline at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisResult, ToRedisArgs, Value, aio::MultiplexedConnection, cmd, io::tcp::TcpSettings,
};
use weir_core::basis::time::millis;

use super::{
    address::NodeAddr,
    network::Link,
    options::RedisOptions,
    request_error::RequestError,
    script::{SCRIPTS, Script},
    stats::{RedisStats, RetryCause},
};

/// The error of a script that is told when it is too late to run, and was.
const LATE: &str = "LATE";

#[derive(Debug, Clone)]
pub(super) enum Request {
    Call {
        script: Script,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
        /// When it is too late to run, as [`super::network::Network::passed`] counts: the last argument of a script that takes
        /// one, by the clock of the node.
        latest: Option<Duration>,
    },
    Plain(Cmd),
}

impl Request {
    pub(super) fn call(script: Script, keys: Vec<String>, args: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        Self::Call { script, keys, args: args.into_iter().map(Into::into).collect(), latest: None }
    }

    pub(super) fn plain(name: &str, args: impl ToRedisArgs) -> Self {
        let mut command = cmd(name);
        command.arg(args);
        Self::Plain(command)
    }
}

/// Whether the node is asked for keys of a slot that it only receives yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asking {
    /// With ASKING before the command.
    Yes,
    No,
}

pub(super) type Reply = Result<Value, RequestError>;

/// Names a connection, differently from all others of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkId(u64);

impl LinkId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A connection, if there is one, and what was loaded through it.
pub(super) struct Node {
    addr: NodeAddr,
    options: Arc<RedisOptions>,
    stats: Arc<RedisStats>,
    connection: Option<Box<dyn Link>>,
    link: LinkId,
    loaded: [Option<String>; SCRIPTS],
    /// The time of the node's clock, in ms since 1970, no earlier than [`super::network::Network::passed`] was this.
    clock: Option<(u64, Duration)>,
}

impl Node {
    pub(super) fn new(addr: NodeAddr, options: Arc<RedisOptions>, stats: Arc<RedisStats>) -> Self {
        let (connection, loaded, clock) = (None, Default::default(), None);
        Self { addr, options, stats, connection, link: LinkId::next(), loaded, clock }
    }

    pub(super) fn addr(&self) -> &NodeAddr {
        &self.addr
    }

    pub(super) fn link(&self) -> Option<LinkId> {
        self.connection.is_some().then_some(self.link)
    }

    /// Sends these requests in one round trip and gives a reply to each, in order. With
    /// `redis.wait_replicas` set, replies count only once enough replicas have what was written.
    pub(super) async fn exchange(&mut self, requests: &[(Asking, Request)]) -> Vec<Reply> {
        match self.try_exchange(requests).await {
            Ok(replies) => replies,
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn try_exchange(&mut self, requests: &[(Asking, Request)]) -> Result<Vec<Reply>, RequestError> {
        let mut pipeline = Pipeline::with_capacity(requests.len() + 1);
        let mut writes = false;
        for (asking, request) in requests {
            if *asking == Asking::Yes {
                pipeline.cmd("ASKING");
            }
            match request {
                Request::Plain(command) => pipeline.add_command(command.clone()),
                Request::Call { script, keys, args, latest } => {
                    writes |= script.writes();
                    let sha = self.sha(*script).await?;
                    let mut command = evalsha(&sha, keys, args);
                    if let Some(latest) = latest {
                        command.arg(self.on_its_clock(*latest)?);
                    }
                    pipeline.add_command(command)
                }
            };
        }
        let wanted = if writes { self.options.wait_replicas } else { 0 };
        if wanted > 0 {
            self.put_wait(&mut pipeline, wanted);
        }
        let mut values = self.send(&pipeline).await?;
        let mut replicated = if wanted > 0 { self.check_replicas(values.pop(), wanted) } else { Ok(()) };
        if wanted == 0 && numbered_beside_replicas(requests, &values) {
            replicated = self.wait_for_a_replica().await;
        }
        let mut values = values.into_iter();
        let mut late = false;
        let replies = requests.iter().map(|(asking, _)| {
            if *asking == Asking::Yes {
                values.next();
            }
            match values.next() {
                Some(Value::ServerError(error)) => {
                    late |= error.code() == LATE;
                    Err(RequestError::of_reply(&error, &self.addr))
                }
                // An error of WAIT says nothing about commands that have errors of their own, such as MOVED.
                Some(value) => replicated.clone().map(|()| value),
                None => Err(RequestError::torn(&self.addr, "replies are missing")),
            }
        });
        let replies: Vec<Reply> = replies.collect();
        // A call that came late in time to be answered was late by a clock that was set meanwhile: it is read again.
        if late || replies.iter().any(|reply| matches!(reply, Err(error) if error.cause == RetryCause::NoScript)) {
            self.loaded = Default::default();
        }
        Ok(replies)
    }

    fn put_wait(&self, pipeline: &mut Pipeline, replicas: u32) {
        let half = u64::try_from(self.options.response_timeout.as_millis() / 2).unwrap_or(u64::MAX);
        pipeline.cmd("WAIT").arg(replicas).arg(half.max(1));
    }

    /// Waits until a replica has what was just written over this connection.
    async fn wait_for_a_replica(&mut self) -> Result<(), RequestError> {
        let mut wait = Pipeline::with_capacity(1);
        self.put_wait(&mut wait, 1);
        let wrote = self.link();
        let mut values = self.send(&wait).await?;
        if self.link() != wrote {
            // Another connection wrote nothing, so its WAIT says nothing.
            let message = "the connection was lost before a replica had the names";
            return Err(RequestError::new(&self.addr, RetryCause::ConnectionLost, message));
        }
        self.check_replicas(values.pop(), 1)
    }

    fn check_replicas(&self, reply: Option<Value>, wanted: u32) -> Result<(), RequestError> {
        let wanted = i64::from(wanted);
        let unavailable = |message: String| RequestError::new(&self.addr, RetryCause::TooFewReplicas, message);
        match reply {
            Some(Value::Int(had)) if had >= wanted => Ok(()),
            Some(Value::Int(had)) => Err(unavailable(format!("{had} of {wanted} replicas had the writes in time"))),
            Some(Value::ServerError(error)) => {
                Err(unavailable(format!("WAIT: {} {:?}", error.code(), error.details())))
            }
            Some(_) | None => Err(RequestError::torn(&self.addr, "WAIT gave no number")),
        }
    }

    /// Sends a pipeline; as many values come back as there are commands.
    async fn send(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, RequestError> {
        let connection = self.connected().await?;
        let values = connection.send(pipeline).await;
        self.stats.round_trip();
        match values {
            Ok(values) if values.len() == pipeline.len() => Ok(values),
            Ok(_) => {
                self.connection = None;
                Err(RequestError::torn(&self.addr, "as many replies as commands were expected"))
            }
            Err(error) => {
                self.connection = None;
                Err(RequestError::of_connection(&error, &self.addr))
            }
        }
    }

    async fn connected(&mut self) -> Result<&mut Box<dyn Link>, RequestError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let connection = self.options.network.connect(&self.addr, &self.options).await.map_err(|error| {
                    let mut error = RequestError::of_connection(&error, &self.addr);
                    if !error.is_final() {
                        error.message.insert_str(0, "cannot connect: ");
                    }
                    error
                })?;
                self.link = LinkId::next();
                self.loaded = Default::default();
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// The SHA under which the node knows a script, loading it where it does not.
    async fn sha(&mut self, script: Script) -> Result<String, RequestError> {
        self.connected().await?;
        if let Some(sha) = &self.loaded[script as usize] {
            return Ok(sha.clone());
        }
        let sha = match self.load(script.source()).await {
            Err(error) if error.message.contains("Error compiling script") => self.load(&script.plain_source()).await?,
            other => other?,
        };
        if script.has_latest() {
            self.read_clock().await?;
        }
        self.loaded[script as usize] = Some(sha.clone());
        Ok(sha)
    }

    async fn load(&mut self, source: &str) -> Result<String, RequestError> {
        self.one(cmd("SCRIPT").arg("LOAD").arg(source), "SCRIPT LOAD").await
    }

    async fn read_clock(&mut self) -> Result<(), RequestError> {
        let before = self.options.network.passed();
        let (seconds, micros): (u64, u64) = self.one(&cmd("TIME"), "TIME").await?;
        self.clock = Some((seconds * 1_000 + micros / 1_000, before));
        Ok(())
    }

    /// The time of the node's clock at a moment, in ms since 1970, as text.
    fn on_its_clock(&self, at: Duration) -> Result<String, RequestError> {
        let Some((shown, since)) = self.clock else { return Err(RequestError::torn(&self.addr, "TIME")) };
        Ok(shown.saturating_add(millis(at.saturating_sub(since))).to_string())
    }

    async fn one<T: FromRedisValue>(&mut self, command: &Cmd, what: &str) -> Result<T, RequestError> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(command.clone());
        match self.send(&pipeline).await?.pop() {
            Some(Value::ServerError(error)) => Err(RequestError::of_reply(&error, &self.addr)),
            Some(value) => redis::from_redis_value(value).map_err(|_| RequestError::torn(&self.addr, what)),
            None => Err(RequestError::torn(&self.addr, what)),
        }
    }
}

/// Whether names were given numbers by a server that has replicas, which its reply ends with. A number is used on all nodes, so it
/// must not be lost with this one: a replica must have it, whatever `redis.wait_replicas` says.
fn numbered_beside_replicas(requests: &[(Asking, Request)], values: &[Value]) -> bool {
    let numbered = requests.iter().any(|(_, request)| matches!(request, Request::Call { script: Script::Intern, .. }));
    let has_replicas = |value: &Value| {
        let Value::Array(parts) = value else { return false };
        matches!(parts.as_slice(), [_, _, _, Value::Int(1..)])
    };
    numbered && values.iter().any(has_replicas)
}

fn evalsha(sha: &str, keys: &[String], args: &[Vec<u8>]) -> Cmd {
    let bytes = sha.len() + keys.iter().map(String::len).sum::<usize>() + args.iter().map(Vec::len).sum::<usize>();
    let mut command = Cmd::with_capacity(3 + keys.len() + args.len(), bytes + 16);
    command.arg("EVALSHA").arg(sha).arg(keys.len()).arg(keys);
    for arg in args {
        command.arg(arg.as_slice());
    }
    command
}

pub(super) async fn connect(addr: &NodeAddr, options: &RedisOptions) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(options.connect_timeout))
        .set_response_timeout(Some(options.response_timeout));
    client(addr, options)?.get_multiplexed_async_connection_with_config(&config).await
}

fn client(addr: &NodeAddr, options: &RedisOptions) -> RedisResult<Client> {
    let mut settings = RedisConnectionInfo::default().set_db(options.database).set_skip_set_lib_name();
    if let Some(username) = &options.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &options.password {
        settings = settings.set_password(password.read()?);
    }
    let (host, port) = (addr.host.clone(), addr.port);
    let info = |addr: ConnectionAddr| -> RedisResult<ConnectionInfo> {
        let tcp = TcpSettings::default().set_nodelay(true);
        Ok(addr.into_connection_info()?.set_redis_settings(settings).set_tcp_settings(tcp))
    };
    let Some(tls) = &options.tls else {
        return Client::open(info(ConnectionAddr::Tcp(host, port))?);
    };
    let addr = ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None };
    Client::build_with_tls(info(addr)?, tls.read()?)
}
