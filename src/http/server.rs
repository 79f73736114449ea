//! The server: threads of its own, so that requests take no turn of the lanes'; connections within their bounds.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, thread, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::ConnectInfo,
    http::{HeaderValue, Request, header::CONNECTION},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
    sync::oneshot,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{
    connections::{Connection, Connections},
    write_timeout::WriteTimeout,
};
use crate::{config::HttpSettings, metrics::Metrics};

/// How long the answer of the last request may take to be written.
const TO_WRITE: Duration = Duration::from_secs(1);
/// The longest head of a request, in bytes, and what is buffered of a connection.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// The most headers that are read, above what is taken: so that the answer can say so.
const MAX_HEADERS_READ: usize = 250;
/// The pause after a connection could not be taken: no file descriptor is free, as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub struct Server {
    ended: oneshot::Receiver<()>,
    draining: CancellationToken,
}

pub(super) struct Ending {
    /// It is asked to end soon: callers are to go elsewhere.
    pub(super) draining: CancellationToken,
    pub(super) stop: CancellationToken,
}

impl Server {
    /// Sends callers to other instances from now on, and answers them until it ends: `/readyz` is 503, and connections are
    /// closed behind their next answer.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    pub async fn ended(self) {
        // A thread that panicked drops the other end, which is an end, too.
        let _ = self.ended.await;
    }
}

/// What all connections share.
struct Shared {
    router: Router,
    connections: Arc<Connections>,
    read_timeout: Duration,
    /// How long open requests may go on once the server is to end: as long as an answer may take, and its writing.
    last_words: Duration,
    ending: Ending,
}

/// Serves until it is to end, and a little longer for what is open.
pub(super) fn start(
    listener: TcpListener,
    router: Router,
    options: &HttpSettings,
    metrics: Arc<Metrics>,
    ending: Ending,
) -> io::Result<Server> {
    let runtime = runtime(options.threads)?;
    let listener = listener.into_std()?;
    let connections = Connections::new(options.connections, metrics);
    let draining = ending.draining.clone();
    let (read_timeout, last_words) = (options.read_timeout, options.timeout + TO_WRITE);
    let shared = Arc::new(Shared { router, connections, read_timeout, last_words, ending });
    let (end, ended) = oneshot::channel();
    thread::Builder::new().name("http".to_owned()).spawn(move || {
        if let Err(error) = runtime.block_on(serve(listener, shared)) {
            tracing::error!(%error, "the HTTP server ended");
        }
        // What still hangs is not waited for.
        runtime.shutdown_background();
        let _ = end.send(());
    })?;
    Ok(Server { ended, draining })
}

/// One thread takes connections and serves them; more than one share the serving.
fn runtime(threads: usize) -> io::Result<Runtime> {
    match threads {
        0 | 1 => Builder::new_current_thread().enable_all().build(),
        threads => Builder::new_multi_thread().worker_threads(threads).thread_name("http").enable_all().build(),
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let accepting = async {
        let mut failing = false;
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    failing = false;
                    let connection = shared.connections.admit().await;
                    tokio::spawn(connected(stream, client, connection, Arc::clone(&shared)));
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "HTTP connections cannot be taken; trying on");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    let _: Option<Infallible> = shared.ending.stop.run_until_cancelled(accepting).await;
    drop(listener);
    let _ = timeout(shared.last_words, shared.connections.all_closed()).await;
    Ok(())
}

/// Serves one connection to its end.
async fn connected(stream: TcpStream, client: SocketAddr, connection: Connection, shared: Arc<Shared>) {
    // Answers are small and written whole: nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    let connection = &connection;
    let answer = service_fn(|request: Request<Incoming>| {
        let (router, draining) = (shared.router.clone(), shared.ending.draining.clone());
        async move {
            connection.work();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(client));
            let answer = router.oneshot(request).await;
            connection.rest();
            answer.map(|mut answer| {
                if draining.is_cancelled() {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                answer
            })
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.read_timeout)
        .max_buf_size(MAX_BUFFER_BYTES)
        .max_headers(MAX_HEADERS_READ)
        .serve_connection(TokioIo::new(WriteTimeout::new(stream, shared.read_timeout)), answer);
    let mut serving = std::pin::pin!(serving);
    let mut stopping = false;
    loop {
        tokio::select! {
            // A client that breaks off or is too slow is no news.
            _ = serving.as_mut() => return,
            () = connection.end.cancelled() => return,
            () = shared.ending.stop.cancelled(), if !stopping => {
                stopping = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}
