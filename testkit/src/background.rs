//! Servers on threads of this process.

use std::{net::SocketAddr, thread::JoinHandle};

use anyhow::{Context, Result};
use tokio::{
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::oneshot,
};

/// Serves each connection to a port of 127.0.0.1. Dropping it cuts all of them.
#[derive(Debug)]
pub(crate) struct Background {
    pub(crate) address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Port 0 is a free one.
    pub(crate) fn start<F: Future<Output = ()> + Send + 'static>(
        name: &str,
        port: u16,
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", port)));
        let listener = listener.with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
        let address = listener.local_addr()?;
        let (end, ended) = oneshot::channel::<()>();
        let accepting = async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket));
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! { () = accepting => {}, _ = ended => {} }
            });
        })?;
        Ok(Self { address, end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One direction of a connection.
pub(crate) type Way = (OwnedReadHalf, OwnedWriteHalf);

/// Connects a client to `target`: the way of its requests and that of the replies. `None`: nobody listens there.
pub(crate) async fn connect(client: TcpStream, target: &str) -> Option<(Way, Way)> {
    let server = TcpStream::connect(target).await.ok()?;
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    Some(((client_reads, server_writes), (server_reads, client_writes)))
}
