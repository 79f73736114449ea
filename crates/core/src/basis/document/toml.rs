//! TOML to a tree with places, by the toml crate's own spans.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Document, Node, Origin, TableEntry, Value};

/// Parses TOML and notes every mistake in its syntax. (The crate bounds its nesting itself.)
pub(super) fn parse(document: &Document<'_>, text: &str) -> Option<Node> {
    let (root, mistakes) = DeTable::parse_recoverable(text);
    for mistake in &mistakes {
        let at = mistake.span().map_or(0, |span| span.start);
        document.note(&Origin::Text(at), format!("is not TOML: {}", mistake.message().replace('\n', ", ")));
    }
    mistakes.is_empty().then(|| table(root.span().start, root.get_ref()))
}

fn table(start: usize, table: &DeTable<'_>) -> Node {
    let entries = table.iter().map(|(key, value)| TableEntry {
        key: key.get_ref().to_string(),
        origin: Origin::Text(key.span().start),
        node: node(value),
    });
    Node { origin: Origin::Text(start), value: Value::Table(entries.collect()) }
}

fn node(spanned: &Spanned<DeValue<'_>>) -> Node {
    let start = spanned.span().start;
    let value = match spanned.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::Number(number.to_string()), Value::Whole),
        DeValue::Float(number) => Value::Number(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(list) => Value::List(list.iter().map(node).collect()),
        DeValue::Table(inner) => return table(start, inner),
    };
    Node { origin: Origin::Text(start), value }
}
