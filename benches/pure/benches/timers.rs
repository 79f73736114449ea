//! Timeouts of admissions, with so many outstanding: `cargo bench -p weir-pure --bench timers`. See `src/timers.rs`.

use divan::{Bencher, counter::ItemsCount};
use weir_oracle::timer_wheel::TimerWheel;
use weir_pure::timers::{Heap, OrderedMap, ROUNDS, Rounds, Timers};

fn main() {
    divan::main();
}

#[divan::bench(types = [TimerWheel<u32>, OrderedMap, Heap], args = [1_000, 10_000, 100_000])]
fn admissions<T: Timers>(bencher: Bencher<'_, '_>, outstanding: usize) {
    let mut rounds = Rounds::<T>::new(outstanding);
    bencher.counter(ItemsCount::new(ROUNDS)).bench_local(|| rounds.run());
}
