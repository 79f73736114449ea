use std::{collections::BTreeSet, path::Path};

use weir_core::document::{Document, Format};

use crate::config::{check, keys::SETTINGS, layers::Layers};

#[test]
fn every_setting_of_the_table_is_read_and_its_default_is_valid() {
    let document = Document::new("weir.toml", "");
    let root = document.parse(Format::Toml).unwrap();
    let layers = Layers::new(&document, &root, []);
    assert_eq!(check::settings(&layers, Path::new("")), None);
    let read: BTreeSet<&str> = layers.read().into_iter().collect();
    assert_eq!(read, SETTINGS.iter().map(|setting| setting.key).collect());
    let problems = document.finish::<()>(None).unwrap_err();
    for problem in problems.all() {
        assert!(problem.message().contains("is not set: write"), "{problem}");
    }
    assert_eq!(problems.all().len(), 8);
}
