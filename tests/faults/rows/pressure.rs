//! Pressure while something breaks. Row 36.

use testkit::http::get_within;

use super::{lost::table_node, *};

/// Fewer than half of the load's users. The window is longer than a case.
const PRESSURE: &str = "[pressure]\nmax_active_users = 2_000\nwindow = \"2h\"\n";
const MOST: usize = 2_000;
const MINUTE_S: i64 = 60;

fn with_pressure(ground: &mut Ground, order: &Order, name: &str) -> Result<Trial> {
    let trial = plain(ground, order, name)?;
    trial.scene.write_policy(&format!("{POLICY}{PRESSURE}"));
    Ok(trial)
}

fn active(worker: &Worker) -> f64 {
    metric(worker, "weir_pressure_active_users", "").unwrap_or(0.0)
}

/// Waits until a condition holds for a worker. Where it waits in vain, the error says what the worker knows.
fn until_of(trial: &mut Trial, worker: usize, what: &str, holds: impl FnMut(&Worker) -> bool) -> Result<()> {
    trial.until_of(worker, what, holds).with_context(|| known(trial.worker(worker)))
}

/// What a worker knows of pressure and of its partitions.
fn known(worker: &Worker) -> String {
    // A frozen one does not answer.
    let ask = |path: &str| get_within(Duration::from_secs(2), &format!("http://{}{path}", address(worker)));
    let said = |path: &str| ask(path).map_or_else(|error| format!("{error:#}"), |(_, body)| body);
    let metrics = said("/metrics");
    let lags: Vec<&str> = metrics.lines().filter(|line| line.starts_with("weir_lag_records{")).collect();
    format!("it knows {}, of its partitions {lags:?}", said("/v1/pressure"))
}

/// Waits until a worker counts so many active users.
fn filled(trial: &mut Trial, worker: usize, percent: usize) -> Result<()> {
    let wanted = (MOST * percent / 100) as f64;
    until_of(trial, worker, &format!("{wanted} users are active"), |worker| active(worker) >= wanted)
}

/// An instance tells others once a second who became active; a turn takes a moment, and a decision is a moment older than its turn.
const UNSYNCED_MS: i64 = 1_500;

/// When workers were killed or frozen, in milliseconds since 1970, and which partitions they had.
#[derive(Default)]
struct Halts(Vec<(i64, Vec<i32>)>);

impl Halts {
    /// Whether others may not have been told of what was decided then in this partition. What a frozen worker was deciding has a time in
    /// here, too.
    fn are_lost(&self, partition: i32, at_ms: i64) -> bool {
        let lost =
            |(halt, had): &(i64, Vec<i32>)| had.contains(&partition) && (halt - UNSYNCED_MS..=*halt).contains(&at_ms);
        self.0.iter().any(lost)
    }
}

/// The decisions on a user's intents, without those that others than pressure have denied.
#[derive(Default)]
struct Course {
    partition: i32,
    /// By their places in the load: when, and whether it was approved. A user's intents are decided in this order.
    decisions: BTreeMap<(u64, u64), (i64, bool)>,
}

impl Course {
    fn came_ms(&self) -> Option<i64> {
        self.decisions.values().find(|(_, approved)| *approved).map(|(at_ms, _)| *at_ms)
    }

    fn denials(&self) -> usize {
        self.decisions.values().filter(|(_, approved)| !approved).count()
    }

    /// When the user was turned away who had been approved before, and when that was, unless others may not have been told of it.
    fn turned_away(&self, halts: &Halts) -> Vec<(i64, i64)> {
        let (mut active_since, mut away) = (Vec::new(), Vec::new());
        for (at_ms, approved) in self.decisions.values() {
            if *approved {
                active_since.push(*at_ms);
                continue;
            }
            let told = active_since.iter().find(|before| !halts.are_lost(self.partition, **before));
            away.extend(told.map(|before| (*at_ms, *before)));
        }
        away
    }
}

/// Which load an intent is of, and its place there. A load begins when the one before has ended.
fn place(id: &str) -> Option<(u64, u64)> {
    let mut numbers = id.rsplit('-').map_while(|number| number.parse::<u64>().ok());
    let index = numbers.next()?;
    Some((numbers.next()?, index))
}

fn courses(trial: &Trial) -> Result<Vec<Course>> {
    let intents = trial.scene.slim_output("intents");
    let partitions: BTreeMap<Option<Vec<u8>>, i32> =
        intents.into_iter().map(|intent| (intent.key, intent.partition)).collect();
    let mut courses: BTreeMap<Option<Vec<u8>>, Course> = BTreeMap::new();
    for (id, decision) in trial.scene.every_decision() {
        let place = place(&id).with_context(|| format!("the place of {id} in the load"))?;
        if decision.approved() || decision.reason() == "pressure" {
            let approved = decision.approved();
            let partition = partitions.get(&decision.record.key).copied().context("its partition")?;
            let course = courses.entry(decision.record.key).or_default();
            course.partition = partition;
            course.decisions.insert(place, (decision.at_ms, approved));
        }
    }
    Ok(courses.into_values().collect())
}

/// Checks that no more users came in than may be active, but for those of whom a worker had not told others when it was killed or frozen, and
/// that no active user was turned away, but for these.
fn judged(mut trial: Trial, times: usize, worker: usize, halts: &Halts) -> Result<Findings> {
    filled(&mut trial, worker, 99)?;
    trial.decided(3_000)?;
    trial.drain()?;
    let courses = courses(&trial)?;
    let came = || courses.iter().filter_map(|course| Some((course.partition, course.came_ms()?)));
    let count = came().count();
    let lost = came().filter(|(partition, at_ms)| halts.are_lost(*partition, *at_ms)).count();
    ensure!(count <= MOST * 102 / 100 + lost, "{count} users of {MOST} came in, of whom {lost} may have been lost");
    ensure!(count >= MOST * 97 / 100, "{count} users of {MOST} came in");
    let denied: usize = courses.iter().map(Course::denials).sum();
    ensure!(denied > 1_000, "{denied} were kept out");
    let away = |halts: &Halts| -> Vec<_> {
        courses
            .iter()
            .flat_map(|course| course.turned_away(halts).into_iter().map(|when| (course.partition, when)))
            .collect()
    };
    let known = away(halts);
    let (first, halted) = (&known[..known.len().min(5)], &halts.0);
    ensure!(known.is_empty(), "{} active users were turned away, {first:?} of them, {halted:?}", known.len());
    trial.note(format!("{count} users of {MOST} came in; active users turned away: {}", away(&Halts::default()).len()));
    if !halts.0.is_empty() {
        trial.note(format!("others may not have been told of {lost} users, and only these were turned away"));
    }
    trial.finish(times)
}

/// The log of activity and the members are deleted, while users come in and when nobody may any more.
pub fn log_lost(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_pressure(ground, order, "pressure-lost")?;
    let workers = ["one", "two"].map(|name| trial.start(name, &SHORT_SESSION));
    trial.all_ready(workers)?;
    trial.load(0)?;
    for time in 0..order.times {
        filled(&mut trial, workers[0], 99 * (time + 1) / order.times - 10)?;
        let (cluster, prefix) = (ground.cluster()?, trial.scene.name.clone());
        let node = table_node(cluster, &prefix)?;
        let keys = ["activity", "activity-members"].map(|key| format!("{prefix}:{{{prefix}}}:{key}"));
        let deleted: u64 = cluster.node(node).query(&["DEL", &keys[0], &keys[1]])?;
        ensure!(deleted == 2, "{deleted} of the two keys were deleted");
        trial.comes_back()?;
    }
    judged(trial, order.times, workers[0], &Halts::default())
}

fn partitions_of(worker: &Worker) -> Vec<i32> {
    let has = |partition: &i32| metric(worker, "weir_lag_records", &format!("\"{partition}\"")).is_some();
    (0..PARTITIONS).filter(has).collect()
}

/// One of two workers is killed while users come in; the other has the whole maximum then, and the successor reads who is active.
pub fn member_killed(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_pressure(ground, order, "pressure-killed")?;
    let stays = trial.start("stays", &SHORT_SESSION);
    let mut dies = trial.start("dies", &SHORT_SESSION);
    trial.all_ready([stays, dies])?;
    trial.load(0)?;
    let mut halts = Halts::default();
    for time in 0..order.times {
        filled(&mut trial, stays, 90 * (time + 1) / order.times)?;
        has_half(&mut trial, dies)?;
        let had = partitions_of(trial.worker(dies));
        trial.worker(dies).kill();
        halts.0.push((now_ms(), had));
        trial.comes_back()?;
        dies = trial.start("dies", &SHORT_SESSION);
        trial.ready(dies)?;
    }
    judged(trial, order.times, stays, &halts)
}

/// A session that outlasts the freeze.
const LONG_SESSION: [(&str, &str); 2] = [("WEIR__KAFKA__PROPERTIES__SESSION_TIMEOUT_MS", "120000"), SHORT_SESSION[1]];

/// Intents per second before the last freeze, divided by how many there are: so few that places are left then. At [`RATE`](crate::trial::RATE)
/// there are none after the first one.
const SLOW_RATE: usize = 60;
/// How much of the maximum is reached at the last freeze, at least.
const REACHED_PERCENT: usize = 20;
/// More places than the count may be off by: if a worker used these after the other had them, too many users would come in.
const MANY_PLACES: u64 = MOST as u64 / 10;

fn standing(worker: &Worker) -> Value {
    serde_json::from_str(&get(worker, "/v1/pressure").1).unwrap_or_default()
}

/// Whether a worker holds all places that nobody uses.
fn has_all_places(worker: &Worker) -> bool {
    let standing = standing(worker);
    let count = |what: &str| standing[what].as_u64().unwrap_or(0);
    standing["members"] == 1 && count("used") + count("held") >= MOST as u64 * 97 / 100
}

/// One of two workers is frozen with places that the other has in the end, and wakes with intents that came meanwhile. Before the last time,
/// the other one has its partitions, too, and places are left. The last time it keeps its partitions and wakes when no place is left, which
/// nobody tells it before it has decided what came: the log takes no turns until then.
pub fn member_frozen(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_pressure(ground, order, "pressure-frozen")?;
    let sessions = [("keeps", &LONG_SESSION), ("loses", &SHORT_SESSION)];
    let [keeps, loses] = sessions.map(|(name, session)| trial.start(name, session));
    trial.all_ready([keeps, loses])?;
    trial.load_at(0, u32::try_from((SLOW_RATE / order.times).max(1))?)?;
    let (all, mut halts) = (usize::try_from(PARTITIONS)?, Halts::default());
    for time in 1..order.times {
        filled_by_both(&mut trial, [keeps, loses], REACHED_PERCENT * time / order.times)?;
        halts.0.push(freeze(&mut trial, loses));
        until_of(&mut trial, keeps, "it has all places", has_all_places)?;
        // Once the broker has ended the transaction that the frozen one may have left open.
        until_of(&mut trial, keeps, "it has all partitions", |worker| partitions_of(worker).len() == all)?;
        trial.worker(loses).thaw();
        trial.comes_back()?;
    }
    filled_by_both(&mut trial, [keeps, loses], REACHED_PERCENT)?;
    let held = standing(trial.worker(keeps))["held"].clone();
    halts.0.push(freeze(&mut trial, keeps));
    trial.unload()?;
    trial.load(0)?;
    until_of(&mut trial, loses, "it has all places", has_all_places)?;
    filled(&mut trial, loses, 99)?;
    let cluster = &*ground.cluster()?;
    let log = cluster.node(table_node(cluster, &trial.scene.name)?);
    // Of all scripts, only a turn at the log reads a stream.
    log.query::<()>(&["ACL", "SETUSER", "default", "-xrange"])?;
    trial.worker(keeps).thaw();
    trial.comes_back()?;
    log.query::<()>(&["ACL", "SETUSER", "default", "+xrange"])?;
    trial.note(format!("frozen with {held} places until none was left"));
    judged(trial, order.times, keeps, &halts)
}

/// Waits until one of two workers has half of the partitions. `/readyz` does not tell: it is 200 before a worker has any, and while they move.
fn has_half(trial: &mut Trial, worker: usize) -> Result<()> {
    let half = usize::try_from(PARTITIONS)? / 2;
    until_of(trial, worker, "it has half of the partitions", |worker| partitions_of(worker).len() == half)
}

/// Waits until each of two workers has half of the partitions, counts so many active users, and holds many places.
fn filled_by_both(trial: &mut Trial, workers: [usize; 2], percent: usize) -> Result<()> {
    // If partitions still moved when a worker with a long session is frozen, nobody would get them before it wakes.
    workers.into_iter().try_for_each(|worker| has_half(trial, worker))?;
    for worker in workers {
        filled(trial, worker, percent)?;
        until_of(trial, worker, "it holds many places", |worker| {
            standing(worker)["held"].as_u64().is_some_and(|held| held > MANY_PLACES)
        })?;
    }
    Ok(())
}

/// Freezes a worker; when that was, and which partitions it had.
fn freeze(trial: &mut Trial, worker: usize) -> (i64, Vec<i32>) {
    let had = partitions_of(trial.worker(worker));
    trial.worker(worker).freeze();
    (now_ms(), had)
}

/// The clock of one of two workers is a minute ahead, or behind.
pub fn clock_off(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let mut trial = with_pressure(ground, order, "pressure-clock")?;
    let clocks = [("right", ProcessClock::ahead(0)?), ("wrong", ProcessClock::ahead(MINUTE_S)?)];
    let workers = clocks.each_ref().map(|(instance, clock)| trial.start_by(instance, clock));
    trial.all_ready(workers)?;
    trial.load(0)?;
    for time in 0..order.times {
        filled(&mut trial, workers[0], 90 * (time + 1) / order.times)?;
        clocks[1].1.set(if time % 2 == 0 { -MINUTE_S } else { MINUTE_S })?;
        trial.comes_back()?;
    }
    judged(trial, order.times, workers[0], &Halts::default())
}
