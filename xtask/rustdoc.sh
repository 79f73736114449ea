#!/bin/sh
# In the place of rustdoc where `cargo test --doc` runs it: makes the docs of a library as well, and denies warnings. cargo tells it by
# what is built already where the dependencies are; `cargo doc` would check all of them first.
set -eu

docs() {
  follows=
  for argument in "$@"; do
    shift
    case $follows$argument in
      --test) ;;
      --test-run-directory) follows=value ;;
      value*) follows= ;;
      *) set -- "$@" "$argument" ;;
    esac
  done
  rustdoc "$@" -D warnings --out-dir "$WEIR_DOCS"
}

case " $* " in
  *" --test "*) docs "$@" ;;
esac
exec rustdoc "$@"
