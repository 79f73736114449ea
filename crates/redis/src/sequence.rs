//! The one loop that sends requests again: calls of one queue one after the other, queues side by side.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use redis::Value;

use super::{
    cluster::{Cluster, Routed},
    keyspace::Keyspace,
    node::{Reply, Request},
    request_error::{RequestError, RetryTiming},
    stats::RetryCause,
};

/// Calls that are made in their order, and what belongs to each.
type CallQueue<T> = VecDeque<(Routed, T)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// All that have no answer: they are safe to repeat.
    Unanswered,
    /// Those that were certainly not carried out: they would count twice. One whose keys are on two nodes is left to the caller.
    NotRun,
}

impl Repeat {
    fn timing(self, error: &RequestError) -> RetryTiming {
        let is_left = error.cause == RetryCause::TryAgain || error.may_have_run();
        if self == Self::NotRun && is_left { RetryTiming::Never } else { error.retry_timing() }
    }
}

/// Makes all calls: in each round the first of every queue, one pipeline a node. A call is made again until it is answered; the
/// next of its queue waits for that. `take` gets each answer with what belongs to its call, as soon as it is there, and may refuse
/// it. Gives for each queue the error that stopped it, if any: the rest of that queue is not sent.
async fn run<T>(
    cluster: &mut Cluster,
    queues: &mut [CallQueue<T>],
    repeat: Repeat,
    mut take: impl FnMut(&T, Value) -> Result<(), RequestError>,
) -> Vec<Option<RequestError>> {
    let mut errors: Vec<Option<RequestError>> = queues.iter().map(|_| None).collect();
    let mut tries = cluster.tries::<usize>();
    let mut open: Vec<usize> = (0..queues.len()).collect();
    loop {
        open.retain(|queue| !queues[*queue].is_empty());
        if open.is_empty() {
            return errors;
        }
        let active: Vec<usize> = open.iter().filter(|queue| !tries.rests(queue)).copied().collect();
        let requests = active.iter().filter_map(|queue| queues[*queue].front()).map(|(call, _)| call.clone()).collect();
        let mut land = |at: usize, reply: Reply| {
            let Some((call, what)) = queues[at].front_mut() else { return };
            errors[at] = reply.and_then(|value| take(what, value)).err();
            call.detour = None;
            let Some(error) = &errors[at] else {
                queues[at].pop_front();
                tries.answered();
                return;
            };
            if error.cause == RetryCause::Ask {
                call.detour = error.to.clone().map(|(_, to)| to);
            }
            if !tries.failed(at, repeat.timing(error)) {
                queues[at].clear();
            }
        };
        let mut silent: BTreeSet<usize> = active.iter().copied().collect();
        let each = |place: usize, reply| {
            silent.remove(&active[place]);
            land(active[place], reply);
        };
        cluster.round_each(requests, each).await;
        for at in silent {
            land(at, Err(cluster.torn("a request got none")));
        }
        open.retain(|queue| !queues[*queue].is_empty());
        if !open.is_empty() && !tries.again(open.iter()).await {
            return errors;
        }
    }
}

/// The calls of each shard, in their order.
pub(super) type Sequences<T> = BTreeMap<u16, VecDeque<(Request, T)>>;

#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Shards without the expected epoch, and what was found.
    pub(super) lost: BTreeMap<u16, String>,
    /// Why calls were not made, where some were not: asking again later may help.
    pub(super) open: Option<String>,
}

/// Makes the calls of all shards. `take` says whether a reply is one to its call.
pub(super) async fn run_shards<T>(
    cluster: &mut Cluster,
    keyspace: &Keyspace,
    calls: Sequences<T>,
    mut take: impl FnMut(&T, &Value) -> bool,
) -> Ended {
    let node = cluster.options().nodes[0].clone();
    let shards: Vec<u16> = calls.keys().copied().collect();
    let queue = |(shard, calls): (u16, VecDeque<(Request, T)>)| {
        let slot = keyspace.slot(shard);
        calls.into_iter().map(|(request, what)| (Routed { slot, detour: None, request }, what)).collect()
    };
    let mut queues: Vec<CallQueue<T>> = calls.into_iter().map(queue).collect();
    let torn = || RequestError::torn(&node, "another length or code");
    let check = |what: &T, value: Value| take(what, &value).then_some(()).ok_or_else(torn);
    let errors = run(cluster, &mut queues, Repeat::Unanswered, check).await;
    let mut ended = Ended::default();
    for (shard, error) in shards.into_iter().zip(errors) {
        match error {
            None => {}
            Some(error) if error.cause == RetryCause::LostHistory => drop(ended.lost.insert(shard, error.message)),
            Some(other) => ended.open = Some(other.to_string()),
        }
    }
    ended
}

impl Cluster {
    /// Sends requests until each has an answer or the tries are used up. Each request must be safe to repeat.
    pub(super) async fn ask_all(&mut self, requests: Vec<(u16, Request)>) -> Vec<Reply> {
        let mut replies: Vec<Option<Value>> = requests.iter().map(|_| None).collect();
        let take = |place: usize, value| {
            replies[place] = Some(value);
            Ok(())
        };
        let errors = self.ask_each(requests, Repeat::Unanswered, take).await;
        let lost = || self.torn("a request got none");
        let both = replies.into_iter().zip(errors);
        both.map(|(reply, error)| reply.ok_or_else(|| error.unwrap_or_else(lost))).collect()
    }

    /// Sends requests, again as `repeat` allows. `take` gets each answer with the place of its request, as soon as it is there, and
    /// may refuse it. Gives the errors of those that have no answer.
    pub(super) async fn ask_each(
        &mut self,
        requests: Vec<(u16, Request)>,
        repeat: Repeat,
        mut take: impl FnMut(usize, Value) -> Result<(), RequestError>,
    ) -> Vec<Option<RequestError>> {
        let routed = |(slot, request)| Routed { slot, detour: None, request };
        let queue = |(place, request)| VecDeque::from([(routed(request), place)]);
        let mut queues: Vec<CallQueue<usize>> = requests.into_iter().enumerate().map(queue).collect();
        run(self, &mut queues, repeat, |place, value| take(*place, value)).await
    }

    /// [`Cluster::ask_all`] for one.
    pub(super) async fn ask(&mut self, slot: u16, request: Request) -> Reply {
        self.ask_one(slot, request, Repeat::Unanswered).await
    }

    /// [`Cluster::ask_each`] for one.
    pub(super) async fn ask_one(&mut self, slot: u16, request: Request, repeat: Repeat) -> Reply {
        let mut reply = Err(self.torn("a request got none"));
        let take = |_: usize, value| {
            reply = Ok(value);
            Ok(())
        };
        let error = self.ask_each(vec![(slot, request)], repeat, take).await.pop().flatten();
        error.map_or(reply, Err)
    }
}
