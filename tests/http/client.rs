//! A client that shows all of an answer, and one that behaves badly.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;
use testkit::worker::Worker;

use crate::support::{DEADLINE, Scene, http::address};

pub const JSON: (&str, &str) = ("content-type", "application/json");

/// An answer. Names of headers are in lower case.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Reply {
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.headers.get("content-type").map(String::as_str), Some("application/json"), "{self:?}");
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// Its problem document, which says the status and this reason.
    #[track_caller]
    pub fn problem(&self, status: u16, reason: &str) -> Value {
        let media_type = self.headers.get("content-type").map(String::as_str);
        assert_eq!((self.status, media_type), (status, Some("application/problem+json")), "{self:?}");
        let problem: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], status, "{problem}");
        assert_eq!(problem["reason"], reason, "{problem}");
        assert_eq!(problem["type"], "about:blank");
        assert!(!problem["title"].as_str().unwrap().is_empty() && !problem["detail"].as_str().unwrap().is_empty());
        problem
    }
}

#[derive(Debug, Clone)]
pub struct Client {
    pub address: String,
    pub token: Option<&'static str>,
}

impl Client {
    pub fn ready(scene: &Scene, instance: &str) -> (Worker, Self) {
        let worker = scene.ready(instance);
        let client = Self::of(&worker);
        (worker, client)
    }

    pub fn of(worker: &Worker) -> Self {
        Self { address: address(worker), token: None }
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub fn decide(&self, query: &str, intent: &Value) -> Reply {
        let path = format!("/v1/decisions{query}");
        self.send("POST", &path, &[JSON], intent.to_string().as_bytes())
    }

    /// All members of a segment, page by page.
    pub fn members(&self, segment: &str, limit: usize) -> Vec<String> {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/v1/segments/{segment}/members?limit={limit}{after}")).json();
            let members = page["members"].as_array().unwrap();
            assert!(members.len() <= limit);
            seen.extend(members.iter().map(|member| member.as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { return seen };
            after = format!("&after={next}");
        }
    }

    /// One request over a connection of its own; headers as given, and no others but Host, length and token.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(token) = self.token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        if !body.is_empty() {
            head += &format!("content-length: {}\r\n", body.len());
        }
        let mut stream = self.connect();
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        answer(&mut stream).expect("an answer")
    }

    /// Asks for this, and does not wait for the answer.
    pub fn begin(&self, path: &str) -> TcpStream {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address).unwrap();
        stream
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect_timeout(&self.address.parse().unwrap(), DEADLINE).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream
    }
}

/// Reads until the other side closes; `None` where it closes without a word.
pub fn answer(stream: &mut TcpStream) -> Option<Reply> {
    let mut bytes = Vec::new();
    // A connection that is reset has said what it had to say.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let (first, rest) = head.split_once("\r\n").unwrap_or((head, ""));
    let headers = rest.lines().map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    Some(Reply { status, headers: headers.collect(), body: body.to_owned() })
}

/// Whether the other side closes the connection within this time, without a word.
pub fn is_closed_within(stream: &mut TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(0) => true,
        Ok(_) => panic!("it was answered"),
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}
