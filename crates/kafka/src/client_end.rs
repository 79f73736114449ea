//! The end of a client that nobody waits for.

use std::{io, thread};

/// Drops a client on a thread of its own. Because of its `group.id`, rdkafka waits until librdkafka has closed it, however long that
/// takes: it may have no broker to ask any more.
///
/// # Errors
/// There is no thread: the client is dropped on this one.
pub(super) fn drop_elsewhere(client: impl Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("client-end".to_owned()).spawn(move || drop(client)).map(drop)
}
