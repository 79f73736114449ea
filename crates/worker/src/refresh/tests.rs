use std::collections::VecDeque;

use super::*;

const DEADLINE: Duration = Duration::from_secs(60);

/// Gives its answers in order, then says that nothing has changed.
struct Script(VecDeque<Result<Option<&'static str>, &'static str>>);

impl RefreshSource for Script {
    type Value = String;
    type Error = &'static str;
    const NAME: &'static str = "script";

    fn version(value: &String) -> &str {
        value
    }

    fn is_temporary(_: &&'static str) -> bool {
        true
    }

    async fn load(&mut self) -> Result<Option<Arc<String>>, &'static str> {
        let answer = self.0.pop_front().unwrap_or(Ok(None))?;
        Ok(answer.map(|text| Arc::new(text.to_owned())))
    }
}

fn start() -> Arc<Refreshed<String>> {
    Refreshed::new(Arc::new("first".to_owned()))
}

#[tokio::test]
async fn a_refused_value_leaves_the_last_good_one_and_is_told_until_the_next_good_read() {
    let refreshed = start();
    let answers = [Err("bad"), Err("bad"), Ok(Some("second")), Err("worse"), Ok(None)];
    let mut source = Script(answers.into());
    let mut seen = Vec::new();
    for _ in 0..5 {
        refresh(&mut source, &refreshed).await;
        let error = refreshed.last_error().map(|error| error.to_string());
        seen.push((refreshed.current().to_string(), error, refreshed.failures()));
    }
    let expected = [
        ("first", Some("bad"), 1),
        ("first", Some("bad"), 2),
        ("second", None, 2),
        ("second", Some("worse"), 3),
        ("second", None, 3),
    ];
    let expected = expected.map(|(value, error, failures)| (value.to_owned(), error.map(str::to_owned), failures));
    assert_eq!(seen, expected);
}

#[test]
fn an_error_is_news_once() {
    let refreshed = start();
    let news = ["a", "a", "b", "a"].map(|error| refreshed.refuse(error.to_owned()));
    assert_eq!(news, [true, false, true, true]);
}

#[tokio::test]
async fn a_read_without_news_confirms_the_value() {
    let refreshed = start();
    let before = refreshed.freshness();
    refresh(&mut Script(VecDeque::new()), &refreshed).await;
    let after = refreshed.freshness();
    assert_eq!(after.loaded_at, before.loaded_at);
    assert!(after.confirmed_at > before.confirmed_at);
}

#[tokio::test]
async fn the_source_is_read_again_and_again_until_told_to_stop() {
    let refreshed = start();
    let stop = CancellationToken::new();
    let answers = [Ok(Some("second")), Err("bad"), Ok(Some("third"))];
    let task = keep_fresh(Script(answers.into()), Arc::clone(&refreshed), Duration::from_millis(10), stop.clone());
    let task = tokio::spawn(task);
    let third = async {
        while *refreshed.current() != "third" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, third).await.expect("the third value comes");
    stop.cancel();
    tokio::time::timeout(DEADLINE, task).await.expect("it stops").unwrap();
}

#[tokio::test]
async fn a_wait_of_an_hour_ends_at_once_when_told_to_stop() {
    let stop = CancellationToken::new();
    stop.cancel();
    let task = keep_fresh(Script(VecDeque::new()), start(), Duration::from_secs(3600), stop);
    tokio::time::timeout(DEADLINE, task).await.expect("it stops");
}
