//! One redis-server process.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    clock::ProcessClock,
    ports::Port,
    process::{Guarded, Signal, printed_within, program},
    scratch::Scratch,
    tls::{Authority, Identity, text},
};

/// How long a server may take to start. Measured: 20 ms.
const START_DEADLINE: Duration = Duration::from_secs(30);
/// How long one run of redis-cli may take. A frozen server accepts its connection and does not answer.
const CLI_DEADLINE: Duration = Duration::from_secs(30);
/// How long one command may take before it counts as not answered.
const REPLY_DEADLINE: Duration = Duration::from_secs(2);

/// How long any reply may take to a bench, whose requests are large.
pub const LONGEST_REPLY: Duration = Duration::from_secs(60);

/// Names another server's program than the redis-server on the path: `cargo xtask redis-versions` sets it.
const OTHER_SERVER: &str = "WEIR_REDIS_SERVER";

/// A connection whose beginning and each of whose requests ends at the deadline.
pub fn connect(deadline: Duration, client: &redis::Client) -> redis::RedisResult<redis::Connection> {
    let connection = client.get_connection_with_timeout(deadline)?;
    connection.set_read_timeout(Some(deadline))?;
    connection.set_write_timeout(Some(deadline))?;
    Ok(connection)
}

fn server_program() -> Result<PathBuf> {
    std::env::var_os(OTHER_SERVER).map_or_else(|| program("redis-server"), |path| Ok(path.into()))
}

/// A Redis server that keeps nothing on disk: killed and restarted, it is empty.
#[derive(Debug)]
pub struct RedisServer {
    name: String,
    // Before `scratch`: the server ends before its folder goes.
    process: Option<Guarded>,
    port: Port,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    ca_file: Option<PathBuf>,
    /// The certificate that redis-cli shows, where the server demands one.
    own: Option<Identity>,
    scratch: Scratch,
}

impl RedisServer {
    /// Starts a single server. `extra_args` go to redis-server as they are: `["--maxmemory", "10mb"]`,
    /// `["--user", "weir", "on", ">secret", "~*", "+@all"]`.
    pub fn start<S: AsRef<str>>(extra_args: &[S]) -> Result<Self> {
        Self::prepare("Redis", Port::lease()?, extra_args)?.started()
    }

    pub fn start_by(clock: &ProcessClock) -> Result<Self> {
        Self::prepare::<&str>("Redis with a clock of its own", Port::lease()?, &[])?.with_clock(clock).started()
    }

    /// Starts a single server that speaks TLS only, with a certificate for 127.0.0.1 and localhost that
    /// [`RedisServer::ca_file`] vouches for.
    pub fn start_tls<S: AsRef<str>>(extra_args: &[S]) -> Result<Self> {
        let mut server = Self::prepare("Redis with TLS", Port::lease()?, extra_args)?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let (certificate, key) = (server.scratch.join("tls.crt"), server.scratch.join("tls.key"));
        std::fs::write(&certificate, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        server.speak_tls((&certificate, &key), &certificate, "no");
        server.started()
    }

    /// Starts a single server that speaks TLS only, and only with clients that the authority vouches for.
    pub fn start_mutual_tls<S: AsRef<str>>(authority: &Authority, extra_args: &[S]) -> Result<Self> {
        let mut server = Self::prepare("Redis with mutual TLS", Port::lease()?, extra_args)?;
        let identity = authority.server("redis")?;
        server.speak_tls((&identity.certificate, &identity.key), &authority.ca_file(), "yes");
        server.own = Some(identity);
        server.started()
    }

    fn speak_tls(&mut self, (certificate, key): (&Path, &Path), ca: &Path, asks_clients: &str) {
        // Later arguments win: the plain port is closed.
        self.args.extend(["--port", "0", "--tls-port", &self.port.number().to_string()].map(str::to_owned));
        for (name, file) in [("--tls-cert-file", certificate), ("--tls-key-file", key), ("--tls-ca-cert-file", ca)] {
            self.args.extend([name.to_owned(), text(file)]);
        }
        self.args.extend(["--tls-auth-clients", asks_clients].map(str::to_owned));
        self.ca_file = Some(ca.to_owned());
    }

    fn started(mut self) -> Result<Self> {
        self.restart()?;
        Ok(self)
    }

    pub(super) fn prepare<S: AsRef<str>>(name: &str, port: Port, extra_args: &[S]) -> Result<Self> {
        let scratch = Scratch::new("redis")?;
        let own = ["--bind", "127.0.0.1", "--port", &port.number().to_string(), "--save", "", "--appendonly", "no"]
            .map(str::to_owned);
        let args = own.into_iter().chain(extra_args.iter().map(|arg| arg.as_ref().to_owned())).collect();
        let (name, env) = (name.to_owned(), Vec::new());
        Ok(Self { name, process: None, port, args, env, ca_file: None, own: None, scratch })
    }

    /// The server, which goes by this clock from its next start on.
    pub(super) fn with_clock(self, clock: &ProcessClock) -> Self {
        // Where the clock is behind, the times until which that thread of jemalloc waits have always passed: it never rests.
        let args = self.args.iter().cloned().chain(["--jemalloc-bg-thread", "no"].map(str::to_owned)).collect();
        Self { env: clock.env_of_day(), args, ..self }
    }

    pub fn url(&self) -> String {
        let scheme = if self.ca_file.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://127.0.0.1:{}", self.port.number())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The certificate to trust (PEM), for a server with TLS.
    pub fn ca_file(&self) -> Option<&Path> {
        self.ca_file.as_deref()
    }

    /// Starts it again, empty, and waits until it answers. One that still runs is killed first.
    pub fn restart(&mut self) -> Result<()> {
        self.process = None;
        let mut command = Command::new(server_program()?);
        command.args(&self.args).envs(self.env.iter().cloned()).current_dir(self.scratch.path());
        let mut process = Guarded::spawn(&self.name, &command, &self.scratch.join("redis.log"))?;
        process.wait_ready(START_DEADLINE, || {
            self.pong().is_ok_and(|said| said.contains("PONG") || said.contains("NO"))
        })?;
        self.process = Some(process);
        Ok(())
    }

    /// What it says to a PING. With ACL users the default user may be off: an answer that says so is an answer.
    fn pong(&self) -> Result<String> {
        if self.ca_file.is_some() {
            return self.cli(&["ping"]);
        }
        let mut socket = TcpStream::connect_timeout(&([127, 0, 0, 1], self.port()).into(), REPLY_DEADLINE)?;
        socket.set_read_timeout(Some(REPLY_DEADLINE))?;
        socket.write_all(b"PING\r\n")?;
        let mut said = String::new();
        BufReader::new(socket).read_line(&mut said)?;
        Ok(said)
    }

    /// Freezes it: its sockets stay open and nobody answers.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Kills it with SIGKILL; all its data is gone.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The id of its process; `None` when it was killed.
    pub fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(Guarded::pid)
    }

    /// What redis-cli prints for these arguments; an error reply of the server is printed like any other.
    pub fn cli(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(program("redis-cli")?);
        command.args(["-h", "127.0.0.1", "-p", &self.port.number().to_string()]);
        if let Some(ca) = &self.ca_file {
            command.args(["--tls", "--cacert"]).arg(ca);
        }
        if let Some(own) = &self.own {
            command.arg("--cert").arg(&own.certificate).arg("--key").arg(&own.key);
        }
        printed_within(CLI_DEADLINE, command.args(args))
    }

    /// Runs a command over a connection of its own. For servers without TLS and users.
    pub fn query<T: redis::FromRedisValue>(&self, args: &[&str]) -> Result<T> {
        let mut connection = connect(REPLY_DEADLINE, &redis::Client::open(self.url())?)?;
        let mut command = redis::Cmd::new();
        command.arg(args);
        command.query(&mut connection).with_context(|| format!("{} at {}", args.join(" "), self.url()))
    }

    /// A figure of INFO: `used_memory` of `memory`.
    pub fn figure(&self, section: &str, name: &str) -> Result<u64> {
        let info: String = self.query(&["INFO", section])?;
        let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(found.with_context(|| format!("{section} has no {name}: {info}"))?.trim().parse()?)
    }

    /// How often each command was called, by clients and by scripts.
    pub fn calls(&self) -> Result<BTreeMap<String, u64>> {
        let info: String = self.query(&["INFO", "commandstats"])?;
        let calls = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        Ok(info.lines().filter_map(calls).collect())
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(process) = &mut self.process {
            process.signal(signal);
        }
    }
}
