//! The judge: nothing lost, nothing twice, no cap exceeded, as a `read_committed` reader sees it.

use std::collections::{BTreeMap, HashMap, HashSet};

use testkit::kafka::Consumed;

use crate::{
    catalogue::Promise,
    support::{
        Decision, Scene, header,
        model::{self, Sent},
        outcome::CASE,
    },
};

/// How much evidence of one kind is kept.
const EVIDENCE: usize = 5;

/// A number, and the first few of what it counts.
#[derive(Debug, Default, Clone)]
pub struct Found {
    pub count: usize,
    pub first: Vec<String>,
}

impl Found {
    fn of(all: impl IntoIterator<Item = String>) -> Self {
        let mut found = Self::default();
        for one in all {
            found.count += 1;
            if found.first.len() < EVIDENCE {
                found.first.push(one);
            }
        }
        found
    }
}

#[derive(Debug, Default, Clone)]
pub struct TrialVerdict {
    pub intents: usize,
    pub approved: usize,
    /// N: records without an output.
    pub lost: Found,
    /// O: records with several outputs, and outputs of records that were never published.
    pub twice: Found,
    /// C: sends over a cap.
    pub exceeded: Found,
    /// Verdicts that are not the model's, over a cap or under it.
    pub different: Found,
}

impl TrialVerdict {
    pub fn keeps(&self, promise: Promise) -> bool {
        let asked: &[&Found] = match promise {
            Promise::Exact => &[&self.lost, &self.twice, &self.exceeded, &self.different],
            Promise::Capped => &[&self.lost, &self.twice, &self.exceeded],
            Promise::Forgets => &[&self.lost, &self.twice],
        };
        self.intents > 0 && asked.iter().all(|found| found.count == 0)
    }
}

type Place = (i32, i64);

/// Judges a scene. `published` is everything that may be in the intents topic and is an intent of the load. A record with
/// the name of a case must come out once, somewhere; what is neither must be a dead letter, once.
pub fn judge(scene: &Scene, published: &[Sent], inputs: &[Consumed]) -> TrialVerdict {
    let known: HashMap<&str, &Sent> = published.iter().map(|sent| (sent.id.as_str(), sent)).collect();
    let (mut order, mut strange, mut cases) = (Vec::new(), HashSet::new(), HashMap::new());
    for input in inputs {
        if let Some(case) = header(input, CASE) {
            cases.insert(case, 0);
            continue;
        }
        match id_of(input).and_then(|id| known.get(id.as_str()).copied()) {
            Some(sent) => order.push(sent.clone()),
            None => drop(strange.insert((input.partition, input.offset))),
        }
    }
    let (mut decisions, mut twice) = (BTreeMap::new(), Vec::new());
    let ids: HashSet<&str> = order.iter().map(|sent| sent.id.as_str()).collect();
    let mut is_case = |record: &Consumed| {
        let count = header(record, CASE).and_then(|case| cases.get_mut(&case));
        count.map(|count: &mut usize| *count += 1).is_some()
    };
    let mut decided = Vec::new();
    for (topic, read) in
        [("approved", Decision::approval as fn(Consumed) -> (String, Decision)), ("suppressed", Decision::suppression)]
    {
        let records = scene.slim_output(topic).into_iter();
        decided.extend(records.filter(|record| !is_case(record)).map(read));
    }
    for (id, decision) in decided {
        if !ids.contains(id.as_str()) {
            twice.push(format!("{id} was decided and is not there"));
        } else if let Some(first) = decisions.insert(id.clone(), decision.clone()) {
            twice.push(format!("{id}: {} and {}", told(&first), told(&decision)));
        }
    }
    let mut dead = HashSet::new();
    for record in scene.slim_output("dead") {
        if is_case(&record) {
            continue;
        }
        let place = origin(&record);
        if !strange.contains(&place) || !dead.insert(place) {
            twice.push(format!("the dead letter of {place:?}"));
        }
    }
    let undecided = order.iter().filter(|sent| !decisions.contains_key(&sent.id)).map(|sent| sent.id.clone());
    let unburied = strange.difference(&dead).map(|place| format!("the record at {place:?}"));
    let several = cases.iter().filter(|(_, count)| **count > 1).map(|(case, count)| format!("case {case}: {count}"));
    twice.extend(several);
    let nowhere = cases.iter().filter(|(_, count)| **count == 0).map(|(case, _)| format!("case {case}"));
    TrialVerdict {
        intents: inputs.len(),
        approved: decisions.values().filter(|decision| decision.approved()).count(),
        lost: Found::of(undecided.chain(unburied).chain(nowhere)),
        twice: Found::of(twice),
        exceeded: Found::of(model::exceeded(&order, &decisions)),
        different: Found::of(model::differences(&order, &decisions)),
    }
}

fn id_of(input: &Consumed) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(input.value.as_deref()?).ok()?;
    value["id"].as_str().map(str::to_owned)
}

fn origin(dead: &Consumed) -> Place {
    let number = |name: &str| header(dead, name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
    (i32::try_from(number("__connect.errors.partition")).unwrap_or(-1), number("__connect.errors.offset"))
}

fn told(decision: &Decision) -> String {
    let record = &decision.record;
    format!("{} at {} in {}/{}", decision.reason(), decision.at_ms, record.partition, record.offset)
}
