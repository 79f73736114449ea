//! What a lane has been told before a shard lost its history is void: all is asked again.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;

#[test]
fn answers_of_before_a_loss_are_void() {
    let asked_anew: Arc<AtomicUsize> = Arc::default();
    let (counted, mut losses) = (Arc::clone(&asked_anew), 3);
    // Answers half and says that the rest lost its history; then wants to be asked for everything.
    let store = by(move |batch, answers| {
        assert!(answers.iter().all(Option::is_none), "an answer of before the loss is kept");
        if losses > 0 {
            losses -= 1;
            fill(&mut answers[..batch.requests.len() / 2], batch.now);
            return Err(StoreError::LostHistory { shards: vec![1], message: "by the test".to_owned() });
        }
        counted.fetch_add(1, Relaxed);
        fill(answers, batch.now);
        Ok(())
    });
    let (end, world) = run_with(store, World::default());
    end.unwrap();
    each_once(&world);
    assert!(asked_anew.load(Relaxed) > 0);
}
