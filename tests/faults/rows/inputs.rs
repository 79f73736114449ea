//! Hostile records, and load concentrated on one user, shard or campaign. Rows 23 and 24.

use super::*;
use crate::support::{TOPICS, outcome::case};

#[path = "../../fixtures/hostile.rs"]
mod table;

use table::{Expected, Hostile, hostile};

/// What a worker takes at the most while a record batch inflates: the default of `worker.memory`, and the 64 MiB that one may
/// inflate to.
const INFLATED_RSS_MIB: u64 = 300 + 64;
/// Intents for one user that are in one batch.
const CROWD: usize = 10_000;
/// How long a script call may take, on average: Redis is single-threaded, so it holds up all others. The slow log's longest is
/// noted only: it includes the time that the server waits for a core.
const CALL: Duration = Duration::from_millis(5);

/// Every hostile record, each several times, and garbled ones, among good intents.
pub fn hostile_records(ground: &mut Ground, order: &Order) -> Result<Findings> {
    let (mut trial, worker) = plain(ground, order, "hostile")?.at_work("only", &[])?;
    for time in 0..order.times {
        let named = hostile().into_iter().map(|hostile| record(&format!("{time} {}", hostile.name), hostile));
        trial.kafka.publish(&trial.scene.topic("intents"), named)?;
        let garbled: Vec<Record> = (0..1_000).map(|number| garbled(&mut trial, time, number)).collect();
        trial.kafka.publish(&trial.scene.topic("intents"), garbled)?;
        trial.comes_back()?;
    }
    trial.live(worker, Duration::ZERO)?;
    reasons(&mut trial)?;
    trial.finish(order.times)
}

/// Records for which no output can be written, and one that inflates to 500 MiB, among good intents.
pub fn not_writable(ground: &mut Ground, order: &Order) -> Result<Findings> {
    const DEFAULT_BYTES: usize = 1_048_588;
    const BOMB_BYTES: usize = 500 << 20;
    let trial = plain(ground, order, "not-writable")?;
    for topic in TOPICS {
        let size = [("max.message.bytes", "1048588")];
        trial.kafka.configure_topic(&trial.scene.topic(topic), &size)?;
    }
    let (mut trial, worker) = trial.at_work("only", &[])?;
    let bomb = vec![0; BOMB_BYTES];
    for time in 0..order.times {
        trial.publish_large("zstd", &format!("{time} zstd"), 9 << 20)?;
        trial.publish_large("none", &format!("{time} under"), DEFAULT_BYTES - 400)?;
        let gzip = trial.kafka.compressing("gzip");
        gzip.publish_as_one_batch(&trial.scene.topic("intents"), 0, &[("bomb", &bomb)])?;
        trial.comes_back()?;
    }
    trial.live(worker, Duration::ZERO)?;
    let dead = trial.scene.output("dead");
    let too_large = dead.iter().filter(|letter| header(letter, "weir-reason").as_deref() == Some("too_large"));
    ensure!(too_large.count() == 3 * order.times, "{} dead letters", dead.len());
    ensure!(dead.iter().all(|letter| letter.value.is_none()), "a dead letter has its value");
    let mib = limits::figure(trial.worker(worker).pid(), "VmHWM:")? / 1024;
    ensure!(mib < INFLATED_RSS_MIB, "the worker took {mib} MiB at the most, {INFLATED_RSS_MIB} are promised");
    trial.finish_noting(order.times, format!("dead letters `too_large`; resident set at most {mib} MiB"))
}

fn record(name: &str, hostile: Hostile) -> Record {
    let mut record = case(name, Record { value: hostile.value, ..Record::default() });
    let headers = hostile.headers.into_iter();
    record
        .headers
        .extend(headers.map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), value.map(<[u8]>::to_vec))));
    record
}

/// An intent with a few bytes replaced.
fn garbled(trial: &mut Trial, time: usize, number: u32) -> Record {
    let name = format!("garbled {time} {number}");
    let mut value = format!(r#"{{"id":"{name}","user_id":"g-{number}","cost":1,"category":"promo"}}"#).into_bytes();
    for _ in 0..=trial.numbers.u64(..4) {
        let place = trial.numbers.usize(..value.len());
        value[place] = trial.numbers.u8(..);
    }
    case(&name, Record::keyless(value))
}

/// Each invalid record is a dead letter with its reason.
fn reasons(trial: &mut Trial) -> Result<()> {
    trial.unload()?;
    let expected: HashMap<&str, &str> = hostile()
        .into_iter()
        .filter_map(|hostile| match hostile.expected {
            Expected::DeadLetter(reason) => Some((hostile.name, reason)),
            Expected::Intent => None,
        })
        .collect();
    trial.until("all dead letters are there", || {
        trial.scene.output("dead").iter().filter_map(|dead| header(dead, CASE)).count() >= expected.len()
    })?;
    let mut dead = 0;
    for letter in trial.scene.output("dead") {
        let name = header(&letter, CASE).context("a dead letter of no case")?;
        dead += 1;
        let Some(reason) = name.split_once(' ').and_then(|(_, name)| expected.get(name)) else { continue };
        let told = header(&letter, "weir-reason").unwrap_or_default();
        ensure!(told == *reason, "{name} is dead for {told}, not {reason}");
    }
    trial.note(format!("{} kinds; {dead} dead letters", hostile().len()));
    Ok(())
}

/// The user, shard or campaign that all intents share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Common {
    User,
    FullHistory,
    Shard,
    Campaign,
}

fn shape(sent: Sent, common: Common) -> Option<Sent> {
    let layout = Layout::for_users(SHARDS, 10_000);
    match common {
        // Of a segment with a cap on all sends, so that its history stays short whatever comes.
        Common::User => Some(Sent { user: 77, category: Some("promo"), ..sent }),
        // Of the segment without caps: every intent is recorded, and from the second batch on the history is full.
        Common::FullHistory => Some(Sent { user: 3_500, category: Some("promo"), ..sent }),
        Common::Shard => (layout.place(UserHash::of(&sent.user.to_string())).shard == 7).then_some(sent),
        Common::Campaign => Some(Sent { campaign: Some("everything".to_owned()), ..sent }),
    }
}

/// A batch of 10,000 for one user, shard or campaign. The longest script call is read from the server's slow log.
pub fn crowd(ground: &mut Ground, order: &Order, common: Common) -> Result<Findings> {
    let server = RedisServer::start(&["--slowlog-log-slower-than", "2000", "--slowlog-max-len", "10000"])?;
    let mut trial = on(ground, order, "crowd", vec![server.url()])?;
    for _ in 0..order.times {
        let intents: Vec<Sent> = trial.stream().filter_map(move |sent| shape(sent, common)).take(CROWD).collect();
        trial.publish(intents)?;
    }
    trial.load(0)?;
    let worker = trial.start("only", &[("WEIR__WORKER__BATCH", "10000")]);
    trial.comes_back_with(worker)?;
    trial.unload()?;
    in_order(&trial)?;
    let (mean, longest) = (mean_call(&server)?, longest_call(&server)?);
    ensure!(mean < CALL, "a script call takes {mean:?}");
    trial.note(format!("a script call takes {mean:.1?} on average, at most {longest:.1?}; order kept"));
    trial.finish(order.times)
}

/// Outputs of one user are in the order of its intents.
fn in_order(trial: &Trial) -> Result<()> {
    let inputs = trial.kafka.read_committed(&trial.scene.topic("intents"))?;
    let ids = inputs.iter().filter_map(|record| {
        let value: serde_json::Value = serde_json::from_slice(record.value.as_deref()?).ok()?;
        Some(value["id"].as_str()?.to_owned())
    });
    let places: HashMap<String, usize> = ids.enumerate().map(|(place, id)| (id, place)).collect();
    for topic in ["approved", "suppressed"] {
        let mut last: HashMap<Vec<u8>, usize> = HashMap::new();
        for record in trial.scene.output(topic) {
            let value: serde_json::Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default())?;
            let id = value["intent_id"].as_str().or(value["id"].as_str()).unwrap_or_default();
            let place = *places.get(id).with_context(|| format!("{id} was never published"))?;
            let before = last.insert(record.key.clone().unwrap_or_default(), place);
            ensure!(before.is_none_or(|before| before < place), "{id} came out of order in {topic}");
        }
    }
    Ok(())
}

fn mean_call(server: &RedisServer) -> Result<Duration> {
    let stats: String = server.query(&["INFO", "commandstats"])?;
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).context("no script was called")?;
    let mean = line.split(',').find_map(|field| field.strip_prefix("usec_per_call=")).context("no mean")?;
    Ok(Duration::from_secs_f64(mean.parse::<f64>()? / 1e6))
}

/// Zero where none was as long as the slow log's least.
fn longest_call(server: &RedisServer) -> Result<Duration> {
    let lines = server.cli(&["slowlog", "get", "10000"])?;
    let mut longest = 0;
    // Each entry: id, time, microseconds, then the command's words.
    let lines: Vec<&str> = lines.lines().map(str::trim).collect();
    for (number, line) in lines.iter().enumerate() {
        if line.eq_ignore_ascii_case("evalsha") && number > 0 {
            longest = longest.max(lines[number - 1].parse::<u64>().unwrap_or(0));
        }
    }
    Ok(Duration::from_micros(longest))
}
