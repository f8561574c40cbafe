# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
#
# fabric_info --map: which peer a job has reached by what, from its report.

mapped() { "$FABRIC_BUILD/contrib/fabric_info/fabric_info" --map "$work/mapped.json" "$@"; }
# reported_to_file NP [MPIRUN ARGUMENT...] : a job that writes $work/mapped.json
reported_to_file() {
  local np=$1
  shift
  fabric "$np" --mca btl_fabric_report "$work/mapped.json" "$@" && says 'checks passed'
}

case_map() {
  reported_to_file 4 --mca btl_fabric_if_include "$dev_a" --mca btl_fabric_receive_queues P,4096,64:P,65536,16 "$check" $small &&
    mapped --picture "$work/map.svg" > out && says '4 processes on 1 host' || return 1
  local rank
  for rank in 0 1 2 3; do
    grep -qE "^  [^ ]+, rank $rank +$dev_a:1 .*, ranks [0-3, -]+  +$dev_a:1 .* 2 +[0-9.]+ [kM]B\$" out || { cat out; return 1; }
  done
  mapped --json > map.json && mapped --rank 2 > out && says 'rank 2' && [ "$(wc -l < out)" -eq 3 ] && python3 - "$work" << 'END'
import json, sys, xml.etree.ElementTree
report, shown = json.load(open(sys.argv[1] + "/mapped.json")), json.load(open("map.json"))
assert len(shown["rows"]) == 4, shown
for row in shown["rows"]:
    assert row["from"]["ranks"] + row["to"]["ranks"] in ([0, 1, 2, 3], [1, 0, 2, 3], [2, 0, 1, 3], [3, 0, 1, 2]), row
    assert row["queue_pairs"] == 2 and row["method"] in report["methods"], row
    assert row["mtu"] == report["ports"][0]["mtu"] and row["from"]["gid"] == row["to"]["gid"] == report["ports"][0]["gid"], row
# The bytes of each pair: a flood of 2000 messages at least.
assert all(count > 2000 for path in report["paths"] for count in path["bytes"]), report["paths"]
squares = xml.etree.ElementTree.parse(sys.argv[1] + "/map.svg").findall(".//{http://www.w3.org/2000/svg}title")
assert len(squares) == 12 and all(f", by {row['method']}, MTU {row['mtu']}, 2 queue pairs" in one.text for one in squares), squares
END
}
# A port of each of two devices, and all queue pairs of all contexts of a port.
case_map_of_two_ports_and_contexts() {
  reported_to_file 2 --mca btl_fabric_if_include "$dev_a,$dev_b" --mca btl_fabric_tx_contexts 2 \
    --mca btl_fabric_receive_queues P,65536,16 "$check" --threads 2 && mapped > out && says "  $dev_a:1  " && says "  $dev_b:1  " || {
    cat out
    return 1
  }
  python3 - "$work/mapped.json" << 'END'
import json, sys
paths = json.load(open(sys.argv[1]))["paths"]
assert len(paths) == 4, paths
assert all(path["port"] == path["peer_port"] and len(path["peers"]) == 1 for path in paths), paths
assert max(path["queue_pairs"] for path in paths) == 2, paths
END
}
case_map_of_x_queues() {
  xrc 2 --mca btl_fabric_report "$work/mapped.json" "$check" $small && says 'checks passed' && mapped > out && says ' 1, shared '
}
case_map_of_what_was_not_connected() {
  reported_to_file 1 "$check" --max 1024 --flood 10 && mapped > out && says 'nobody was connected with anybody'
}
case_map_of_a_file_that_is_no_report() {
  echo '{"processes": "many"}' > "$work/mapped.json"
  mapped > out 2>&1
  [ $? -eq 2 ] && says "fabric_info: $work/mapped.json is no report of btl_fabric_report FILE.json, or one of an older version: " &&
    says 'processes is "many", but must be a whole number from 1 to ' || return 1
  rm "$work/mapped.json"
  mapped > out 2>&1
  [ $? -eq 2 ] && says "fabric_info: $work/mapped.json cannot be read" || return 1
  mapped --picture map.png > out 2>&1
  [ $? -eq 2 ] && says '--picture map.png: pictures are SVG, and the name must end in .svg'
}
