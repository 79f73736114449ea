//! Which intents a rule of the policy applies to, in words.

use std::collections::BTreeSet;

use weir_core::{intent::class::Filter, policy::Selection};

/// `channel push or sms and category promo`, behind the given words; nothing for everything.
pub fn filter_in_words(filter: &Filter, before: &str) -> String {
    let channels = filter.channels.as_ref().map(|names| any("channel", names));
    let categories = filter.categories.as_ref().map(|names| any("category", names));
    let parts: Vec<String> = [channels, categories].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!("{before}{}", parts.join(" and ")) }
}

/// `channel push and campaign spring or summer`
pub fn selection_in_words(selection: &Selection) -> String {
    let what = Some(filter_in_words(&selection.filter, "")).filter(|what| !what.is_empty());
    let campaigns = selection.campaigns.as_ref().map(|names| any("campaign", names));
    what.into_iter().chain(campaigns).collect::<Vec<_>>().join(" and ")
}

fn any(what: &str, names: &BTreeSet<String>) -> String {
    format!("{what} {}", names.iter().map(String::as_str).collect::<Vec<_>>().join(" or "))
}

/// The words for a part of the intents, or for all of them.
pub fn or_all(words: String, all: &str) -> String {
    if words.is_empty() { all.to_owned() } else { words }
}
