//! `weir policy simulate`, through the built binary.

mod caps;
mod model;
mod page;
mod runs;
mod topics;
