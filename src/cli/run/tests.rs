use std::collections::VecDeque;

use super::*;

/// Gives its answers in order, and is away from then on.
struct Script(VecDeque<Result<&'static str, Trouble>>);

#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
enum Trouble {
    #[error("away")]
    Away,
    #[error("wrong")]
    Wrong,
}

impl RefreshSource for Script {
    type Value = &'static str;
    type Error = Trouble;
    const NAME: &'static str = "script";

    fn version<'v>(value: &'v &'static str) -> &'v str {
        value
    }

    fn is_temporary(error: &Trouble) -> bool {
        *error == Trouble::Away
    }

    async fn load(&mut self) -> Result<Option<Arc<&'static str>>, Trouble> {
        self.0.pop_front().unwrap_or(Err(Trouble::Away)).map(|value| Some(Arc::new(value)))
    }
}

#[tokio::test]
async fn a_start_waits_for_a_store_that_is_away_and_not_for_what_is_wrong() {
    let comes = Script([Err(Trouble::Away), Err(Trouble::Away), Ok("v1")].into());
    let (_, value) = first(comes, START_PATIENCE).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(*value, "v1");

    let wrong = Script([Err(Trouble::Away), Err(Trouble::Wrong), Ok("v1")].into());
    let error = first(wrong, START_PATIENCE).await.err().map(|error| (error.is::<UsageError>(), error.to_string()));
    assert_eq!(error, Some((true, "wrong".to_owned())));

    let stays_away = first(Script(VecDeque::new()), Duration::from_millis(500)).await;
    let error = stays_away.err().map(|error| (error.is::<UsageError>(), error.to_string()));
    assert_eq!(error, Some((false, "away".to_owned())), "a failure at run time: exit code 1");
}
