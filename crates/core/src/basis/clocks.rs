//! Whether this machine's clock may be decided by: it is compared with the clocks of other machines.
//!
//! Every Redis node is asked for its time now and then. The offset of its clock from our monotonic time is kept, so any
//! later moment is compared without a call, and a step of our own clock shows at once. A record that a broker has stamped
//! (`LogAppendTime`) shows that the broker's clock is at least that late. The majority decides, our own clock among them: one
//! wrong clock elsewhere stops nobody.

use std::{fmt, time::Duration};

use super::time::Time;

/// How far a clock may be from another, in milliseconds. A user's newest entry pulls a decision forward by as much
/// (`lua/admit.lua`), so clocks within it decide each user's intents in one order.
pub const MAX_SKEW_MS: i64 = 5 * 60 * 1000;

/// The most clocks that an error names.
const NAMED: usize = 3;

/// The clock, and time that passes. The clock is read once for each time that a batch is judged, and handed down; what waits
/// uses the other two, which no change of the system's clock disturbs.
pub trait Clock: Send + Sync {
    /// The time now, to be shown. What is decided or trimmed goes by [`Clock::time_to_decide`].
    fn now(&self) -> Time;

    /// The time now, to decide by. A clock that there is nothing to compare with is taken to be right. `appends`: when brokers have stamped
    /// the records that are to be decided. Fails where most other clocks contradict it, or none has been asked yet: decide nothing, and ask
    /// again.
    fn time_to_decide(&self, appends: &[Append]) -> Result<Time, WrongClock> {
        let _ = appends;
        Ok(self.now())
    }

    /// Time passed since some fixed moment; never goes back.
    fn passed(&self) -> Duration;

    fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnClock {
    pub wall: Time,
    /// Monotonic time since some fixed moment.
    pub passed: Duration,
}

/// The clock of another machine, as it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherClock {
    machine: String,
    /// Its time minus our monotonic time, in milliseconds.
    offset_ms: i64,
    /// Half of the round trip: the answer was given at some moment of it.
    error_ms: i64,
}

/// What a round of questions found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClockAnswers {
    /// All machines that there are to ask.
    pub machines: Vec<String>,
    pub answered: Vec<OtherClock>,
}

/// The newest record of a batch that a broker has stamped with its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Append {
    pub broker: i32,
    pub at: Time,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtherClocks(Vec<OtherClock>);

/// Why nothing may be decided by our clock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongClock {
    #[error(
        "this machine's clock has not been compared with another yet: no Redis node has answered TIME in time. weir decides \
         nothing until one does"
    )]
    Unknown,
    #[error(
        "this machine's clock shows {own}, more than 5 minutes from {contradicting} of {compared} other clocks: {others}. \
         weir decides nothing until the clock is right; check the time synchronization of this machine (timedatectl, \
         chronyc tracking), and of those named"
    )]
    Contradicted {
        /// What it shows.
        own: Time,
        contradicting: usize,
        /// How many say something about it.
        compared: usize,
        /// Some of those that contradict it.
        others: Others,
    },
}

/// Clocks that contradict ours, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Others(Vec<(String, i64)>);

/// What another clock says about ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vote {
    Agrees,
    Contradicts,
    /// It cannot tell: its answer took too long, or its record is an old one.
    Abstains,
}

impl OtherClock {
    /// A machine's answer to the question for its time, asked and answered at these moments of monotonic time.
    pub fn new(machine: String, (asked, answered): (Duration, Duration), time: Time) -> Self {
        let error_ms = millis(answered.saturating_sub(asked)).div_euclid(2) + 1;
        let between_ms = millis(asked).midpoint(millis(answered));
        Self { machine, offset_ms: time.millis().saturating_sub(between_ms), error_ms }
    }

    /// How far our clock is ahead of it, in milliseconds.
    fn skew_ms(&self, own: OwnClock) -> i64 {
        own.wall.millis().saturating_sub(self.offset_ms.saturating_add(millis(own.passed)))
    }

    fn vote(&self, own: OwnClock) -> Vote {
        let skew_ms = self.skew_ms(own).saturating_abs();
        if skew_ms.saturating_sub(self.error_ms) > MAX_SKEW_MS {
            Vote::Contradicts
        } else if skew_ms.saturating_add(self.error_ms) <= MAX_SKEW_MS {
            Vote::Agrees
        } else {
            Vote::Abstains
        }
    }
}

impl Append {
    /// How far our clock is ahead of the moment when the record was appended, in milliseconds.
    fn skew_ms(&self, own: OwnClock) -> i64 {
        own.wall.millis().saturating_sub(self.at.millis())
    }

    /// An old record may have waited: it says nothing. One from our future proves that the two clocks are apart.
    fn vote(&self, own: OwnClock) -> Vote {
        let skew_ms = self.skew_ms(own);
        if skew_ms < -MAX_SKEW_MS {
            Vote::Contradicts
        } else if skew_ms <= MAX_SKEW_MS {
            Vote::Agrees
        } else {
            Vote::Abstains
        }
    }
}

impl OtherClocks {
    /// These clocks after another round of questions. A machine that did not answer keeps what it said before; one that is
    /// not there any more is forgotten.
    #[must_use]
    pub fn after(&self, round: ClockAnswers) -> Self {
        let ClockAnswers { machines, answered: mut clocks } = round;
        for known in &self.0 {
            if machines.contains(&known.machine) && clocks.iter().all(|clock| clock.machine != known.machine) {
                clocks.push(known.clone());
            }
        }
        Self(clocks)
    }

    /// Whether to decide by our clock: not while more of the others contradict it than agree with it, or none is known.
    /// `appends` are those of the records to be decided. Gives how many contradict it all the same.
    pub fn judge(&self, own: OwnClock, appends: &[Append]) -> Result<usize, WrongClock> {
        let (mut agreeing, mut contradicting) = (0, 0);
        let clocks = self.0.iter().map(|clock| clock.vote(own));
        for vote in clocks.chain(appends.iter().map(|append| append.vote(own))) {
            agreeing += usize::from(vote == Vote::Agrees);
            contradicting += usize::from(vote == Vote::Contradicts);
        }
        if self.0.is_empty() || agreeing + contradicting == 0 {
            return Err(WrongClock::Unknown);
        }
        if contradicting > agreeing {
            let compared = agreeing + contradicting;
            let others = self.contradicting(own, appends);
            return Err(WrongClock::Contradicted { own: own.wall, contradicting, compared, others });
        }
        Ok(contradicting)
    }

    pub fn contradicting(&self, own: OwnClock, appends: &[Append]) -> Others {
        let nodes = self.0.iter().filter(|clock| clock.vote(own) == Vote::Contradicts);
        let nodes = nodes.map(|clock| (format!("Redis node {}", clock.machine), clock.skew_ms(own)));
        let brokers = appends.iter().filter(|append| append.vote(own) == Vote::Contradicts);
        let brokers = brokers.map(|append| (format!("Kafka broker {}", append.broker), append.skew_ms(own)));
        Others(nodes.chain(brokers).collect())
    }

    /// How far our clock is ahead of each machine's, in milliseconds, by name.
    pub fn skews_ms(&self, own: OwnClock) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(move |clock| (clock.machine.as_str(), clock.skew_ms(own)))
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, skew_ms)) in self.0.iter().take(NAMED).enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            let way = if *skew_ms < 0 { "ahead" } else { "behind" };
            write!(f, "{comma}{name} is {} {way}", in_words(*skew_ms))?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// How far two clocks are apart, to the second: `1h 2m`.
pub fn in_words(skew_ms: i64) -> impl fmt::Display {
    humantime::format_duration(Duration::from_secs((skew_ms.unsigned_abs() + 500) / 1000))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON_MS: i64 = 1_795_046_400_000;
    const MINUTE_MS: i64 = 60_000;
    const HOUR_MS: i64 = 60 * MINUTE_MS;

    /// The true time, an hour after the process started.
    fn at(ms: i64) -> Time {
        Time::default().plus(NOON_MS + ms)
    }

    /// Our clock, so far ahead, some time after the process started.
    fn own(ahead_ms: i64, passed_s: u64) -> OwnClock {
        OwnClock { wall: at(i64::try_from(passed_s).unwrap() * 1000 + ahead_ms), passed: Duration::from_secs(passed_s) }
    }

    /// Nodes that were asked when the process started, each with its clock so far ahead.
    fn nodes(ahead_ms: &[i64]) -> OtherClocks {
        let machines: Vec<String> = (0..ahead_ms.len()).map(|node| format!("redis-{node}:6379")).collect();
        let asked = (Duration::ZERO, Duration::from_millis(2));
        let clock = |(machine, ahead): (&String, &i64)| OtherClock::new(machine.clone(), asked, at(1 + ahead));
        let answered = machines.iter().zip(ahead_ms).map(clock).collect();
        OtherClocks::default().after(ClockAnswers { machines, answered })
    }

    #[test]
    fn a_clock_within_five_minutes_of_the_others_decides_and_one_beyond_does_not() {
        for (ahead_ms, decides) in [
            (0, true),
            (4 * MINUTE_MS, true),
            (-4 * MINUTE_MS, true),
            (MAX_SKEW_MS - 10, true),
            (MAX_SKEW_MS + 10, false),
            (-MAX_SKEW_MS - 10, false),
            (HOUR_MS, false),
            (-HOUR_MS, false),
            (8 * 24 * HOUR_MS, false),
        ] {
            for others in [nodes(&[0]), nodes(&[0, 0, 0])] {
                assert_eq!(others.judge(own(ahead_ms, 0), &[]).is_ok(), decides, "{ahead_ms}");
                assert_eq!(others.judge(own(ahead_ms, 3600), &[]).is_ok(), decides, "{ahead_ms}, an hour later");
            }
        }
    }

    #[test]
    fn the_majority_decides_with_our_own_clock_among_it() {
        for (ahead_ms, decides) in [
            (&[HOUR_MS][..], false),
            (&[0, HOUR_MS], true),
            (&[HOUR_MS, HOUR_MS], false),
            (&[0, HOUR_MS, 0], true),
            (&[HOUR_MS, 0, -HOUR_MS], false),
            (&[0, 0, HOUR_MS, HOUR_MS], true),
        ] {
            let judged = nodes(ahead_ms).judge(own(0, 0), &[]);
            assert_eq!(judged.is_ok(), decides, "{ahead_ms:?}");
            if let Ok(contradicting) = judged {
                assert_eq!(contradicting, ahead_ms.iter().filter(|ahead| **ahead != 0).count());
            }
        }
    }

    #[test]
    fn nothing_is_decided_before_a_clock_was_compared() {
        let broker = Append { broker: 1, at: at(0) };
        assert_eq!(OtherClocks::default().judge(own(0, 0), &[broker]), Err(WrongClock::Unknown));
        let late = OtherClock::new("a".to_owned(), (Duration::ZERO, Duration::from_secs(1200)), at(0));
        let late = OtherClocks::default().after(ClockAnswers { machines: vec!["a".to_owned()], answered: vec![late] });
        assert_eq!(late.judge(own(0, 1200), &[]), Err(WrongClock::Unknown), "an answer that took 20 minutes");
    }

    #[test]
    fn a_record_from_the_future_proves_that_clocks_are_apart_and_an_old_one_nothing() {
        let append = |ahead_ms, broker| Append { broker, at: at(ahead_ms) };
        let one = nodes(&[-HOUR_MS]);
        let behind = own(-HOUR_MS, 0);
        assert_eq!(one.judge(behind, &[append(-HOUR_MS, 1)]), Ok(0), "a broker with the same wrong clock");
        assert_eq!(one.judge(behind, &[append(0, 1)]), Ok(1), "one against one: our own decides");
        assert!(one.judge(behind, &[append(0, 1), append(0, 2)]).is_err());
        let ahead = own(HOUR_MS, 0);
        assert_eq!(nodes(&[HOUR_MS]).judge(ahead, &[append(0, 1), append(0, 2)]), Ok(0), "they may have waited");
    }

    #[test]
    fn who_does_not_answer_is_known_by_what_it_said_and_who_is_gone_is_forgotten() {
        let before = nodes(&[HOUR_MS, 0, 0]);
        let machines = ["redis-0:6379", "redis-1:6379"].map(str::to_owned).to_vec();
        let mended = OtherClock::new(machines[0].clone(), (Duration::from_secs(9), Duration::from_secs(9)), at(9000));
        let after = before.after(ClockAnswers { machines, answered: vec![mended] });
        assert_eq!(after.skews_ms(own(0, 9)).collect::<Vec<_>>(), [("redis-0:6379", 0), ("redis-1:6379", 0)]);
    }

    #[test]
    fn an_error_says_how_far_which_clock_is_away_and_what_to_do() {
        let error = nodes(&[0, 0, 0, 0]).judge(own(8 * 24 * HOUR_MS, 0), &[]).unwrap_err().to_string();
        assert!(error.contains("4 of 4 other clocks: Redis node redis-0:6379 is 8days behind, "), "{error}");
        assert!(error.contains(" and 1 more. ") && error.contains("timedatectl"), "{error}");
    }
}
