//! Loading a set.
