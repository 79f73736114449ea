//! The promises of leases.
