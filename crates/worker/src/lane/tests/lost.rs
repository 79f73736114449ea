//! What a lane has been told before a shard lost its history is void: all is asked again.

use std::sync::atomic::AtomicUsize;

use super::*;

#[test]
fn answers_of_before_a_loss_are_void() {
    let (mut losses, asked_anew) = (3, AtomicUsize::new(0));
    // Answers half and says that the rest lost its history; then wants to be asked for everything.
    let lossy = store(|batch, answers| {
        assert!(answers.iter().all(Option::is_none), "an answer of before the loss is kept");
        if losses > 0 {
            losses -= 1;
            fill(&mut answers[..batch.requests.len() / 2], batch.now);
            return Err(has_lost_its_history());
        }
        asked_anew.fetch_add(1, Ordering::Relaxed);
        fill(answers, batch.now);
        Ok(())
    });
    done(run_with(lossy, World::default()));
    assert!(asked_anew.load(Ordering::Relaxed) > 0);
}
