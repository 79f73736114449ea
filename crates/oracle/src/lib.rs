//! The oracle of weir: admissions for services that ask before they work, whatever they work on.
//!
//! What a service's instances have registered ([`service`]) is shared by the instances of weir, as a limit of `weir-core`. Each of them
//! gives [`admissions`] from its share, and forgets those that are not ended in time ([`timer_wheel`]). HTTP asks the [`desk`], whose
//! task takes the turns.
//!
//! It depends on `weir-core` alone, and no lane depends on it. It knows Redis only as the port [`service::Services`]. What it counts
//! it reports to an [`observer`].

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a private crate: a doc that repeats the name is left out")]

pub mod admissions;
pub mod desk;
pub mod observer;
pub mod service;
pub mod timer_wheel;
