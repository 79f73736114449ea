use std::collections::BTreeMap;

use super::*;
use crate::{
    class::Filter,
    policy::{Caps, Mode},
    zone::Zone,
};

const OFFSETS: i64 = 300;
const FIELDS: u64 = 7;

fn policy(bypass: &[(&str, Counts)], on_unavailable: &[(&str, Unavailable)]) -> Policy {
    let filter = |channel: &str| Filter { channels: Some([channel.to_owned()].into()), categories: None };
    let bypass =
        bypass.iter().map(|(channel, counts)| Bypass { filter: filter(channel), campaigns: None, counts: *counts });
    let rules =
        on_unavailable.iter().map(|(channel, action)| OnUnavailable { filter: filter(channel), action: *action });
    Policy {
        version: "test".to_owned(),
        timezone: Zone::utc(),
        segments: BTreeMap::new(),
        default: Arc::new(Caps::Unlimited),
        bypass: bypass.collect(),
        on_unavailable: rules.collect(),
        quiet_hours: None,
        max_age_ms: None,
        mode: Mode::Enforce,
    }
}

/// Different terms: what waits, where all does, and by another policy and other shards.
fn all_terms() -> Vec<Arc<Terms>> {
    let one = policy(&[("sms", Counts::No), ("mail", Counts::Yes)], &[("push", Unavailable::Approve)]);
    let other = policy(&[], &[("mail", Unavailable::Suppress), ("push", Unavailable::Wait)]);
    [Terms::of(&one, 8), Terms::of_all(&one, 8), Terms::of(&other, 8), Terms::of(&other, 5)].map(Arc::new).to_vec()
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn offset(&mut self, end: i64) -> i64 {
        self.below(end.cast_unsigned()).cast_signed()
    }
}

fn intent(offset: i64) -> (UserHash, ClassNames<'static>) {
    let channel = [Some("push"), Some("mail"), Some("sms"), None][offset as usize * 7 % 11 % 4];
    (UserHash::of(&format!("u{}", offset % 37)), ClassNames { channel, ..ClassNames::default() })
}

/// The same as a list of all that is open.
struct Model {
    open: BTreeSet<i64>,
    parked: Parked,
    /// The longest text so far, in bytes.
    texts: usize,
}

impl Model {
    fn read(&mut self, (from, to): (i64, i64), waits: Option<&Condition>) {
        let mut decided = BTreeSet::new();
        for offset in from..to {
            let (user, class) = intent(offset);
            if !self.open.contains(&offset) {
                continue;
            }
            if waits.is_none_or(|waits| !waits.holds(user, &class)) {
                self.open.remove(&offset);
                if let Some(waits) = waits.filter(|waits| waits.terms.waits(&class)) {
                    decided.insert(user.shard(waits.terms.shards));
                }
            }
        }
        self.parked.read((from, to), waits, &decided);
        let text = self.parked.text(FIELDS);
        self.texts = self.texts.max(text.len());
        let again = Parked::of_text(&text, FIELDS).unwrap();
        assert_eq!((again.spans(), again.next()), (self.parked.spans(), self.parked.next()), "{text}");
        for offset in 0..OFFSETS {
            let (user, class) = intent(offset);
            let open = self.open.contains(&offset);
            assert_eq!(self.parked.is_open(offset, user, &class), open, "{offset}: {text}");
        }
        let from = self.parked.next() / 2;
        let step = self.parked.next_open(from);
        assert!(step >= from && self.open.range(from..step).next().is_none());
        let first_open = self.open.first().copied().unwrap_or(OFFSETS).min(self.parked.next());
        assert!(self.parked.first().unwrap_or(first_open) <= first_open, "{text}");
        assert!(self.parked.spans().windows(2).all(|pair| pair[0].to <= pair[1].from));
    }
}

#[test]
fn what_is_open_is_told_exactly_whatever_is_away_and_read_again() {
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let terms = all_terms();
        let mut model = Model { open: (0..OFFSETS).collect(), parked: Parked::nothing(0), texts: 0 };
        let mut position = 0;
        while model.parked.next() < OFFSETS {
            if position == model.parked.next() && numbers.below(4) == 0 {
                position = model.parked.first().unwrap_or(position);
            }
            let to = (position + 1 + numbers.offset(40)).min(OFFSETS);
            let terms = &terms[numbers.below(if seed % 2 == 0 { 1 } else { 4 }) as usize];
            let away: BTreeSet<u16> = (0..terms.shards).filter(|_| numbers.below(3) == 0).collect();
            let condition = Condition { terms: Arc::clone(terms), away: Arc::new(away) };
            let waits = (!condition.away.is_empty()).then_some(&condition);
            model.read((position, to), waits);
            position = to;
        }
        // All shards are back.
        let first = model.parked.first().unwrap_or(OFFSETS);
        model.read((first, OFFSETS), None);
        assert!(model.open.is_empty() && model.parked.first().is_none());
    }
}

#[test]
fn shards_that_are_noticed_one_after_the_other_and_stay_away_take_one_span() {
    let terms = &all_terms()[0];
    let mut model = Model { open: (0..OFFSETS).collect(), parked: Parked::nothing(0), texts: 0 };
    let mut known = BTreeSet::new();
    for from in (0..OFFSETS).step_by(2) {
        let of = |offset: i64| intent(offset).0.shard(8);
        known.extend((from..from + 2).map(of).filter(|shard| [1, 2, 6].contains(shard)));
        let condition = Condition { terms: Arc::clone(terms), away: Arc::new(known.clone()) };
        model.read((from, from + 2), (!known.is_empty()).then_some(&condition));
    }
    assert_eq!(model.parked.spans().len(), 1, "{}", model.parked.text(FIELDS));
    assert!(model.texts < 250, "{}", model.texts);
    assert_eq!(model.parked.awaited(OFFSETS, 8), Some([1, 2, 6].into()));
    assert_eq!(model.parked.awaited(OFFSETS, 16), None, "they were counted in another way");
    assert_eq!(model.parked.awaited(0, 8), Some(BTreeSet::new()), "nothing before the first");
    // Read again when there are more shards, and some of them are away.
    let terms = Arc::new(Terms { shards: 16, ..(**terms).clone() });
    let condition = Condition { terms, away: Arc::new([3, 9].into()) };
    model.read((0, OFFSETS), Some(&condition));
    assert_eq!(model.parked.awaited(OFFSETS, 16), Some([3, 9].into()));
}

#[test]
fn texts_of_others_say_nothing_and_broken_ones_are_refused() {
    let read = |text: &str| Parked::of_text(text, FIELDS).unwrap_err();
    assert_eq!(read("commit by a tool"), ParkedError::NotOurs);
    assert_eq!(read("{}"), ParkedError::NotOurs);
    let mut parked = Parked::nothing(3);
    let condition = Condition { terms: Arc::clone(&all_terms()[0]), away: Arc::new((0..3).collect()) };
    parked.read((3, 9), Some(&condition), &BTreeSet::new());
    let text = parked.text(FIELDS);
    assert_eq!(Parked::of_text(&text, FIELDS + 1), Err(ParkedError::OtherFields));
    let broken = [
        text.replace("parked/1", "parked/2"),
        text.replace("\"from\":3", "\"from\":9"),
        text.replace("\"next\":9", "\"next\":8"),
        text.replace("0-2", "2-0"),
        text.replace("0-2", "0-70000"),
        text.replace("0-2", "0-8"),
        text.replace("0-2", "0-2,1"),
        text.replace("\"shards\":8", "\"shards\":16385"),
        text.replace("[[0,", &format!("[{}[0,", " ".repeat(65_536))),
        text.replace("[[0,", "[[1,"),
        text.replace("[[0,\"0-2\"]]", "[]"),
        text.replace("\"spans\"", "\"others\""),
        text[..text.len() - 1].to_owned(),
    ];
    for broken in broken {
        assert_ne!(broken, text);
        assert!(matches!(read(&broken), ParkedError::Unreadable(_)), "{broken}");
    }
}
