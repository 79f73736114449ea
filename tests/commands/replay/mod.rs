//! `weir policy simulate`, through the built binary.

mod budgets;
mod deferral;
mod model;
mod page;
mod pressure;
mod runs;
mod topics;
