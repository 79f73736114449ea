//! `weir policy simulate`, through the built binary.

mod caps;
mod deferral;
mod model;
mod page;
mod runs;
mod topics;
