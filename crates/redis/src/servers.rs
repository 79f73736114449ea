//! The settings that every server should have, and whether it has them.

use weir_core::ports::StoreError;

use super::{
    address::NodeAddr,
    cluster::Cluster,
    node::Request,
    options::{Absent, Eviction, Tuning},
    request_error::RequestError,
    stats::RetryCause,
};

/// What `hash-max-listpack-value` should be: histories of up to 51 sends stay compact. 64, the default, is
/// passed by the fourth send, and the key then takes half as much memory again.
pub const LISTPACK_VALUE_BYTES: u64 = 1024;

/// Looks at every primary. Gives warnings.
pub(super) async fn check(cluster: &mut Cluster) -> Result<Vec<String>, StoreError> {
    let mut warnings = Vec::new();
    for node in cluster.primaries() {
        let checked = match check_eviction(cluster, &node, &mut warnings).await {
            Ok(()) => check_listpack(cluster, &node, &mut warnings).await,
            refused => refused,
        };
        match checked {
            Err(StoreError::Temporary(reason)) if cluster.options().absent == Absent::Leave => {
                warnings.push(format!("{reason}; its settings were not looked at"));
            }
            checked => checked?,
        }
    }
    Ok(warnings)
}

async fn check_eviction(cluster: &mut Cluster, node: &NodeAddr, out: &mut Vec<String>) -> Result<(), StoreError> {
    let info: String = match cluster.ask_node(node, Request::plain("INFO", "memory")).await {
        Ok(value) => redis::from_redis_value(value).unwrap_or_default(),
        Err(error) => return unreadable(error, node, ("maxmemory-policy", "noeviction"), out),
    };
    let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(str::trim);
    match (policy, cluster.options().eviction) {
        (Some("noeviction"), _) => {}
        (Some(policy), Eviction::Refuse) => {
            return Err(StoreError::Fatal(format!(
                "{node}: maxmemory-policy is {policy}, so Redis may drop histories and with them caps: set it to \
                 noeviction (CONFIG SET or the parameter group), or redis.allow_eviction = true to run all the same"
            )));
        }
        (Some(policy), Eviction::Allow) => {
            out.push(format!("{node}: maxmemory-policy is {policy}: caps are forgotten when memory runs out"));
        }
        (None, _) => out.push(format!("{node}: INFO does not tell maxmemory-policy; make sure that it is noeviction")),
    }
    Ok(())
}

async fn check_listpack(cluster: &mut Cluster, node: &NodeAddr, out: &mut Vec<String>) -> Result<(), StoreError> {
    // The older of its two names: every version knows it.
    const NAME: &str = "hash-max-ziplist-value";
    let pairs: Vec<String> = match cluster.ask_node(node, Request::plain("CONFIG", ("GET", NAME))).await {
        Ok(value) => redis::from_redis_value(value).unwrap_or_default(),
        Err(error) => return unreadable(error, node, ("hash-max-listpack-value", "1024"), out),
    };
    let value: Option<u64> = pairs.get(1).and_then(|value| value.parse().ok());
    if value.is_some_and(|value| value >= LISTPACK_VALUE_BYTES) {
        return Ok(());
    }
    let known = value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
    let costs = format!("{node}: hash-max-listpack-value is {known}, and histories take half as much memory again");
    match cluster.options().tuning {
        Tuning::Set => {
            let set = Request::plain("CONFIG", ("SET", NAME, LISTPACK_VALUE_BYTES));
            if let Err(error) = cluster.ask_node(node, set).await {
                return unreadable(error, node, ("hash-max-listpack-value", "1024"), out);
            }
        }
        Tuning::Announce => {
            out.push(format!(
                "{costs}: weir run sets it to {LISTPACK_VALUE_BYTES} where the server lets it (redis.tune)"
            ));
        }
        Tuning::Advise => out.push(format!(
            "{costs}: put hash-max-listpack-value {LISTPACK_VALUE_BYTES} (before Redis 7: hash-max-ziplist-value) into \
             redis.conf or the parameter group, or set redis.tune = true"
        )),
    }
    Ok(())
}

/// A server that does not let itself be looked at (managed services, ACLs) is only warned of.
fn unreadable(
    error: RequestError,
    node: &NodeAddr,
    (setting, value): (&str, &str),
    out: &mut Vec<String>,
) -> Result<(), StoreError> {
    if error.cause != RetryCause::Refused {
        return Err(super::open::startup(error));
    }
    let message = &error.message;
    out.push(format!("{node}: {setting} cannot be read or set ({message}); make sure that it is {value}"));
    Ok(())
}
