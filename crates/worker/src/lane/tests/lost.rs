//! What a lane has been told before a shard lost its history is void: all is asked again.

use super::*;

/// Answers half and says that the rest lost its history; then wants to be asked for everything.
struct Lossy {
    losses: usize,
    asked_anew: Arc<std::sync::atomic::AtomicUsize>,
}

impl Store for Lossy {
    async fn admit(&mut self, batch: &AdmitBatch<'_>, answers: &mut [Option<Answer>]) -> Result<(), StoreError> {
        assert!(answers.iter().all(Option::is_none), "an answer of before the loss is kept");
        if self.losses > 0 {
            self.losses -= 1;
            fill(&mut answers[..batch.requests.len() / 2], batch.now);
            return Err(StoreError::LostHistory { shards: vec![1], message: "by the test".to_owned() });
        }
        self.asked_anew.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        fill(answers, batch.now);
        Ok(())
    }

    never_given_up!();
}

#[test]
fn answers_of_before_a_loss_are_void() {
    let asked_anew = Arc::default();
    let store = Lossy { losses: 3, asked_anew: Arc::clone(&asked_anew) };
    let (end, world) = run_with(store, World::default());
    end.unwrap();
    each_once(&world);
    assert!(asked_anew.load(std::sync::atomic::Ordering::Relaxed) > 0);
}
