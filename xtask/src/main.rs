//! weir chores
fn main() {}
