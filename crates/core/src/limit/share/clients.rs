//! Clients of where a limit is kept, each for one call at a time.

/// The clients that are not in use. If all are, another one is made, so that a node that hangs delays no call to other nodes.
pub struct Clients<S> {
    connect: Box<dyn Fn() -> S + Send>,
    free: Vec<S>,
}

impl<S> Clients<S> {
    pub fn new(connect: impl Fn() -> S + Send + 'static) -> Self {
        Self { connect: Box::new(connect), free: Vec::new() }
    }

    pub fn take(&mut self) -> S {
        self.free.pop().unwrap_or_else(|| (self.connect)())
    }

    /// One whose call has ended.
    pub fn put_back(&mut self, client: S) {
        self.free.push(client);
    }
}
