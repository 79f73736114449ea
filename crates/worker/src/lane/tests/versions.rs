//! A batch is judged, and says to be judged, by one policy and one set of segments, though others come while the store is asked.

use weir_core::{
    basis::shard::IdHash,
    policy::{Cap, Caps},
};

use super::*;

/// A policy with this version, whose one cap has it as its limit.
fn policy(like: &Policy, version: u32) -> Arc<Policy> {
    let cap = Cap { limit: version, ..like.default.list()[0].clone() };
    Arc::new(Policy { version: version.to_string(), default: Arc::new(Caps::Limited(vec![cap])), ..like.clone() })
}

fn segments(version: u32) -> Arc<SegmentSet> {
    Arc::new(SegmentSet::new(version.to_string(), UserIds::new(UserIdKind::U32, ""), Vec::new()))
}

fn version(policy: &Policy) -> u32 {
    policy.default.list()[0].limit
}

#[test]
fn a_batch_is_decided_by_one_policy_and_one_set_though_others_come_while_the_store_is_asked() {
    let like = decider(&World::default()).policy.get();
    let (in_force, set) = (Current::new(policy(&like, 1)), Current::new(segments(1)));
    // The version by which each intent was asked for last: the limit of the policy's one cap.
    let mut asked = BTreeMap::<u64, u32>::new();
    // At first the store has half of a batch's answers.
    let mut answer = after(1);
    let replacing = store(|batch, answers| {
        let by = batch.requests.iter().map(|request| (request.id.0, batch.cap_sets[request.cap_set][0].limit));
        asked.extend(by);
        let before = in_force.get();
        let next = version(&before) + 1;
        in_force.replace(policy(&before, next));
        set.replace(segments(next));
        answer(batch, answers)
    });
    let (policy, segments) = (Some(Arc::clone(&in_force)), Some(Arc::clone(&set)));
    let world = done(run_at_once(replacing, World { policy, segments, ..World::default() }));
    let ledger = world.ledger.write().unwrap();
    let mut next = 0;
    for size in &world.sizes {
        let first = next;
        next += i64::try_from(*size).unwrap();
        let by = |offset: i64| asked[&IdHash::of(&format!("i-{offset}")).0];
        let says = format!(r#""policy_version":"{0}","segments_version":"{0}""#, by(first));
        for offset in first..next {
            let headers = ledger.headers[&offset].replace('\\', "");
            assert!(by(offset) == by(first) && headers.contains(&says), "{offset}: {} {headers}", by(offset));
        }
    }
    let versions = usize::try_from(version(&in_force.get())).unwrap();
    assert!(versions > 2 * world.sizes.len(), "each batch is asked for twice: {versions}");
}
