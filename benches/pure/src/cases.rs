//! What is counted, each by a name.

use std::{
    hint::black_box,
    sync::{Arc, mpsc},
    time::Duration,
};

use weir_core::{
    basis::shard::{IdHash, OriginMark},
    batch::{
        decider::{AskedBatch, Decider, Decoded, DecodedBatch, GatedBatch, Ground, Patience, Takes, Times},
        record::{ReadBefore, progress_of},
    },
    history::{Entry, decide::Answer, pack, reply::read_reply, unpack},
    intent::class::{Campaign, ClassNames, ClassNumbers, Kind},
    limit::{
        budget::{
            lease::{Claimed, Funded, Leases, Lender, Ticket},
            ledger::TakeAnswer,
        },
        pressure::activity::{ActiveUsers, ActivityHash, Minute},
        share::TurnNumber,
    },
    segment::{LookupScratch, UserSegment},
};
use weir_oracle::timer_wheel::TimerWheel;

use crate::{
    timers::{Heap, OrderedMap, ROUNDS, Rounds, Timers},
    workload::{
        BATCH, Batch, Denied, Payload, Sent, Shape, answers, decider, decider_with_pressure, now, three_budgets,
    },
};

/// What the monotonic clock shows when batches are judged.
const JUDGED_AT: Duration = Duration::from_secs(1);
/// As in a worker that does not defer.
const WAITS: Patience = Patience { unavailable_after: None, may_defer: false, replays_pay: true };

pub struct Case {
    /// How many times `run` does it.
    pub operations: usize,
    pub run: Box<dyn FnMut()>,
}

type Setup = fn() -> Case;

/// All of them: a name, and how it is made ready. An operation is one intent, for the codecs one history or send, and
/// for timers one admission.
pub fn cases() -> Vec<(&'static str, Setup)> {
    vec![
        ("decode/plain", || decode(Shape::USUAL)),
        ("decode/8-headers", || decode(Shape { sent: Sent::WithHeaders, ..Shape::USUAL })),
        ("decode/event-structured", || decode(Shape { sent: Sent::Structured, ..Shape::USUAL })),
        ("decode/event-binary", || decode(Shape { sent: Sent::Binary, ..Shape::USUAL })),
        ("decode/other-script", || decode(Shape { payload: Payload::Script, ..Shape::USUAL })),
        ("decode/hostile", || decode(Shape { payload: Payload::Hostile, ..Shape::USUAL })),
        ("decode/no-json", || decode(Shape { sent: Sent::CutOff, ..Shape::USUAL })),
        ("segments/lookup", lookup),
        ("gate", gate),
        ("encode/approved", || encode(Shape::USUAL, Denied::None)),
        ("encode/approved-1000-campaigns", || encode(Shape { campaigns: 1000, ..Shape::USUAL }, Denied::None)),
        ("encode/suppressed", || encode(Shape::USUAL, Denied::All)),
        ("encode/dead-letter", || encode(Shape { sent: Sent::CutOff, ..Shape::USUAL }, Denied::None)),
        ("history/pack", || history(|entries| drop(black_box(pack(black_box(entries)))))),
        ("history/unpack", || {
            let packed = pack(&entries());
            history(move |_| drop(black_box(unpack(black_box(&packed)))))
        }),
        ("reply/read", reply),
        ("pressure/is-active", || {
            pressure(|known, user, now| {
                black_box(known.is_active(user, now));
            })
        }),
        ("pressure/note-known", || {
            pressure(|known, user, now| {
                black_box(known.note(user, now, now));
            })
        }),
        ("timers/wheel-1000", || timers::<TimerWheel<u32>>(1_000)),
        ("timers/wheel-10000", || timers::<TimerWheel<u32>>(10_000)),
        ("timers/wheel-100000", || timers::<TimerWheel<u32>>(100_000)),
        ("timers/map-1000", || timers::<OrderedMap>(1_000)),
        ("timers/map-10000", || timers::<OrderedMap>(10_000)),
        ("timers/map-100000", || timers::<OrderedMap>(100_000)),
        ("timers/heap-1000", || timers::<Heap>(1_000)),
        ("timers/heap-10000", || timers::<Heap>(10_000)),
        ("timers/heap-100000", || timers::<Heap>(100_000)),
        ("whole", || whole(decider(Vec::new()))),
        ("whole-3-budgets", || whole(decider(three_budgets()))),
        ("whole-pressure", || whole(decider_with_pressure())),
    ]
}

fn case(operations: usize, run: impl FnMut() + 'static) -> Case {
    Case { operations, run: Box::new(run) }
}

/// Timeouts of admissions with so many outstanding.
fn timers<T: Timers + 'static>(outstanding: usize) -> Case {
    let mut rounds = Rounds::<T>::new(outstanding);
    case(ROUNDS, move || {
        black_box(rounds.run());
    })
}

/// A value for the rest of the process, so that what borrows from it can be kept in a case.
fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn decode(shape: Shape) -> Case {
    let (decider, batch) = (decider(Vec::new()), shape.batch());
    case(BATCH, move || drop(black_box(decider.decode(black_box(&batch)))))
}

fn lookup() -> Case {
    let decider = decider(Vec::new());
    let (_, decoded) = decoded(&decider, Shape::USUAL);
    let (mut scratch, mut found) = (LookupScratch::default(), Vec::<UserSegment>::new());
    case(BATCH, move || {
        let set = decider.segments.get();
        set.lookup_many(decoded.iter().flatten().map(|intent| set.number_of(intent)), &mut scratch, &mut found);
        black_box(&found);
    })
}

fn decoded(decider: &Decider, shape: Shape) -> (&'static Batch, &'static [Decoded<'static>]) {
    let batch = kept(shape.batch());
    (batch, kept(decider.decode(batch)))
}

/// A batch through the gate, as a lane's.
fn begun<'b>(decider: &Decider, records: &'b Batch, decoded: &'b [Decoded<'b>]) -> GatedBatch<'b, Batch> {
    let (times, read_before) = (Times::One(now()), ReadBefore::none());
    let ground = Ground { times, passed: JUDGED_AT, read_before, takes: Takes::FromPools, budgets: Some(WAITS) };
    decider.begin(DecodedBatch { records, decoded }, ground)
}

fn gate() -> Case {
    let decider = decider(Vec::new());
    let (batch, decoded) = decoded(&decider, Shape::USUAL);
    case(BATCH, move || drop(black_box(begun(&decider, batch, black_box(decoded)).ask(None))))
}

fn encode(shape: Shape, denied: Denied) -> Case {
    let decider = decider(Vec::new());
    let (batch, decoded) = decoded(&decider, shape);
    let mut asked = begun(&decider, batch, decoded).ask(None);
    asked.answer(answers(asked.requests(), denied));
    let (mut decided, _) = asked.finish();
    case(BATCH, move || drop(black_box(black_box(&mut decided).outputs(&numbers))))
}

/// The numbers of a class, as a store knows them.
fn numbers(_: &ClassNames<'_>) -> Option<ClassNumbers> {
    Some((Kind(12), Campaign(345)))
}

/// Something that is done with each user of a batch, all of whom are active already.
fn pressure<T>(what: impl Fn(&ActiveUsers, ActivityHash, Minute) -> T + 'static) -> Case {
    let decider = decider_with_pressure();
    let (_, decoded) = decoded(&decider, Shape::USUAL);
    let users: Vec<ActivityHash> = decoded.iter().flatten().map(|intent| intent.user.into()).collect();
    let state = decider.held.pressure.and_then(|pressure| pressure.state()).expect("it is in force");
    case(BATCH, move || {
        for user in &users {
            black_box(what(&state.users, black_box(*user), now().into()));
        }
    })
}

/// The worker's whole work on a batch between poll and produce; a quarter of the batch is suppressed.
fn whole(decider: Decider) -> Case {
    let batch = Shape::USUAL.batch();
    let mut leases = funded(&decider, &batch);
    let (back, unspent) = mpsc::channel();
    // What is not spent is heard.
    let granter: Lender = Arc::new(move |settling| back.send(settling).expect("it is listened for"));
    let decoded = decider.decode(&batch);
    let asked = asked_of(begun(&decider, &batch, &decoded), &mut leases, &granter);
    let answered: Vec<Option<Answer>> = answers(asked.requests(), Denied::AQuarter);
    drop(asked);
    drop(decoded);
    case(BATCH, move || {
        let decoded = decider.decode(black_box(&batch));
        let mut asked = asked_of(begun(&decider, &batch, &decoded), &mut leases, &granter);
        black_box(asked.segment_counts());
        black_box(asked.requests());
        asked.answer(answered.clone());
        let (mut decided, settlement) = asked.finish();
        drop(black_box(decided.outputs(&numbers)));
        unspent.try_iter().for_each(|settling| leases.settle(settling, JUDGED_AT));
        black_box(settlement).committed();
        drop(black_box(progress_of(&batch)));
    })
}

/// A batch with the tokens that it needs.
fn asked_of<'b>(gated: GatedBatch<'b, Batch>, leases: &mut Leases, granter: &Lender) -> AskedBatch<'b, Batch> {
    let claim = gated.claim().map(Arc::clone);
    let funded = claim.map(|claim| match leases.claim(Ticket(0), &claim, JUDGED_AT) {
        Claimed::Answered(answers) => Funded::new(claim, answers, Arc::clone(granter)),
        Claimed::Pending => panic!("there are tokens"),
    });
    gated.ask(funded)
}

/// Leases with tokens for very many batches.
fn funded(decider: &Decider, batch: &Batch) -> Leases {
    let mut leases = Leases::new(100);
    let decoded = decider.decode(batch);
    let gated = begun(decider, batch, &decoded);
    let Some(claim) = gated.claim() else { return leases };
    assert_eq!(leases.claim(Ticket(0), claim, JUDGED_AT), Claimed::Pending, "there are no tokens yet");
    let due = leases.due(JUDGED_AT, || TurnNumber { run: 1, number: 0 });
    for call in due.turns.into_iter().map(|due| due.call) {
        let counted_for_ms = i64::MAX;
        let answer = TakeAnswer { granted: 1 << 50, free_in_ms: Some(0), counted_for_ms, ..TakeAnswer::default() };
        leases.answered(call, Ok(answer), JUDGED_AT, JUDGED_AT);
    }
    leases
}

/// A long history of 50 sends.
fn entries() -> Vec<Entry> {
    let entry = |number: u32| {
        let (at, id) = (now().plus(-60_000 * i64::from(50 - number)), IdHash(u64::from(number) << 20));
        Entry { at, id, origin: OriginMark(number), kind: Kind(3), campaign: Campaign(number % 7), cost: 1 }
    };
    (0..50).map(entry).collect()
}

fn history(codec: impl Fn(&[Entry]) + 'static) -> Case {
    let entries = entries();
    case(1000, move || (0..1000).for_each(|_| codec(&entries)))
}

/// A reply that denies every fourth send.
fn reply() -> Case {
    let mut bytes = u16::try_from(BATCH).expect("a batch is that small").to_be_bytes().to_vec();
    for place in (0..BATCH).step_by(4) {
        bytes.extend_from_slice(&u16::try_from(place).expect("a batch is that small").to_be_bytes());
        bytes.extend_from_slice(&[0x23, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    case(BATCH, move || drop(black_box(read_reply(black_box(&bytes), BATCH, 0))))
}
