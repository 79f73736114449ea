//! The pure parts of weir, timed: `cargo bench -p weir-pure`. For what does not depend on the machine's load, there is
//! `cargo xtask counts`.

use divan::{Bencher, counter::ItemsCount};

fn main() {
    divan::main();
}

fn names() -> impl Iterator<Item = &'static str> {
    weir_pure::cases().into_iter().map(|(name, _)| name)
}

#[divan::bench(args = names())]
fn pure(bencher: Bencher<'_, '_>, name: &str) {
    let (_, setup) = weir_pure::cases().into_iter().find(|(case, _)| *case == name).expect("it is one of the names");
    let mut case = setup();
    bencher.counter(ItemsCount::new(case.operations)).bench_local(|| (case.run)());
}
