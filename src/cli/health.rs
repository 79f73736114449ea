//! `weir health`: asks a running worker whether it is alive or ready, so that an image needs no shell and no HTTP client.

use std::{
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use anyhow::Context as _;
use axum::{
    body::{Body, to_bytes},
    http::{Request, StatusCode, Uri, header},
};
use clap::Args;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use weir_core::basis::document::value::length;

use super::{args::ConfigFile, exit::UsageError, output::plain};
use crate::config;

const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Arguments of `weir health`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 if it is, 1 if it is not or does not answer, 2 for wrong usage or configuration.")]
pub struct HealthArgs {
    #[command(flatten)]
    config: ConfigFile,
    /// The worker's HTTP address: http://127.0.0.1:8080 [default: the http.listen of the configuration, on loopback if it is
    /// all addresses]
    #[arg(long, value_name = "URL", value_parser = authority)]
    url: Option<String>,
    /// Ask whether the worker is ready (/readyz) rather than alive (/livez)
    #[arg(long)]
    ready: bool,
    /// Longest time to wait for the answer
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = length)]
    timeout: Duration,
}

/// Host and port of a URL.
fn authority(text: &str) -> Result<String, String> {
    let wrong = || "give http://HOST:PORT, as the worker has it without TLS".to_owned();
    let url: Uri = text.parse().map_err(|_| wrong())?;
    let authority = url.authority().filter(|_| url.scheme_str() == Some("http") && url.path() == "/");
    let authority = authority.ok_or_else(wrong)?;
    Ok(if authority.port().is_some() { authority.to_string() } else { format!("{authority}:80") })
}

/// Asks and prints the answer in one line.
pub async fn run(args: &HealthArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let authority = match &args.url {
        Some(authority) => authority.clone(),
        None => {
            let listen = config::load_listen(&args.config.path).map_err(|error| UsageError(error.to_string()))?;
            reachable(listen)?.to_string()
        }
    };
    let path = if args.ready { "/readyz" } else { "/livez" };
    let answer = tokio::time::timeout(args.timeout, ask(&authority, path)).await;
    let url = format!("http://{authority}{path}");
    let answer = answer.map_err(|_| anyhow::anyhow!("{url}: no answer within {:?}", args.timeout))?;
    let (status, body) = answer.with_context(|| format!("{url}: no answer"))?;
    if status == StatusCode::OK {
        return Ok(writeln!(out, "{}", plain(body.trim_end()))?);
    }
    let problem: Value = serde_json::from_str(&body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or_default();
    anyhow::bail!("{url}: {} {}", status.as_u16(), plain(detail))
}

/// Where a worker of this machine answers that listens here.
fn reachable(listen: SocketAddr) -> anyhow::Result<SocketAddr> {
    if listen.port() == 0 {
        let message = "http.listen has port 0, so that any free one is taken: give --url, or set a port";
        return Err(UsageError(message.to_owned()).into());
    }
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    Ok(SocketAddr::new(ip, listen.port()))
}

async fn ask(authority: &str, path: &str) -> anyhow::Result<(StatusCode, String)> {
    let stream = TcpStream::connect(authority).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driven = tokio::spawn(connection);
    let request = Request::get(path).header(header::HOST, authority).body(Body::empty())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = to_bytes(Body::new(answer.into_body()), MAX_ANSWER_BYTES).await?;
    driven.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_on_all_addresses_is_asked_on_loopback() {
        let at = |listen: &str| reachable(listen.parse().unwrap()).map(|address| address.to_string()).unwrap();
        assert_eq!(at("0.0.0.0:8080"), "127.0.0.1:8080");
        assert_eq!(at("[::]:8080"), "[::1]:8080");
        assert_eq!(at("10.1.2.3:8080"), "10.1.2.3:8080");
        assert!(reachable("127.0.0.1:0".parse().unwrap()).is_err());
    }

    #[test]
    fn a_url_is_http_and_has_no_path() {
        assert_eq!(authority("http://127.0.0.1:8080").unwrap(), "127.0.0.1:8080");
        assert_eq!(authority("http://localhost/").unwrap(), "localhost:80");
        for wrong in ["", "localhost:8080", "https://localhost", "http://localhost/livez", "http://"] {
            assert!(authority(wrong).is_err(), "{wrong}");
        }
    }
}
