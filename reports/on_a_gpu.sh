#!/usr/bin/env bash
# Everything that needs a GPU, in one go: conformance of the accelerated backend and of the vendor's library,
# compute-sanitizer over the accelerated suite, benchmarks beside the vendor.
#   reports/on_a_gpu.sh OUT VENDOR_LIBRARY [conformance|sanitize|bench ...]
set -uo pipefail
out=$1 vendor=$2
shift 2
steps=${*:-conformance sanitize bench}
jobs=${JOBS:-8}
mkdir -p "$out"
status=0
note() { echo "$(date +%T) $*"; }

# Nothing is compiled while something is judged or timed; what the cache has takes no time.
build_kernels() { dualdnn build --jobs "$(nproc)" >"$out/build.log" 2>&1 || status=1; tail -1 "$out/build.log"; }

run_conformance() {
  dualdnn info && build_kernels
  dualdnn conformance --subject accelerated:gpu --subject "library:$vendor" --jobs "$jobs" --out "$out" >"$out/conformance.log" 2>&1 || status=1
  keep_report
  grep -E "^(accelerated|library|vendor|recorded|FAILED|report|[0-9]+ (passed|failed))" "$out/conformance.log" | cut -c1-200 | tail -60
}

# What is kept of a run: no paths of the machine that made it.
keep_report() {
  local site
  site=$(python3 -c 'import dualdnn.api, pathlib; print(pathlib.Path(dualdnn.api.__file__).parents[2])')
  sed -e "s#$(dirname "$vendor")/##g" -e "s#$site/##g" -e 's#/\(tmp\|home\|root\)/[A-Za-z0-9_./-]*#...#g' "$out/compliance.json" |
    gzip -9n >"$out/compliance.json.gz"
}

# Each tool watches every process of the suite, on a GPU of its own where there are several; kernels are compiled already, from
# the conformance step. A refused call of the driver is no finding: cases ask for more memory than there is. Two tools must be told how
# many barriers a block may have: of their own they count too few, as they do with 64 (no block has more than 51), and with 65536
# they run out of memory. A case that takes two minutes shows where its threads are.
run_sanitize() {
  local suite gpus pids=() tools=${TOOLS:-memcheck racecheck initcheck synccheck}
  local -A options=([memcheck]="--report-api-errors no" [racecheck]="--num-cuda-barriers 1024" [synccheck]="--num-cuda-barriers 1024")
  suite=$(python3 -c 'import dualdnn.conformance.cases, os; print(os.path.dirname(dualdnn.conformance.cases.__file__))')
  gpus=$(nvidia-smi -L | wc -l)
  for tool in $tools; do
    (export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-$((${#pids[@]} % gpus))}
    timeout "${SANITIZE_SECONDS:-400}" compute-sanitizer --tool "$tool" ${options[$tool]:-} --error-exitcode 9 --target-processes all \
      python3 -m pytest -q -p dualdnn.conformance.plugin -p no:cacheprovider -o faulthandler_timeout=120 -n "${SANITIZE_JOBS:-4}" --dist worksteal \
      --subject accelerated:gpu -k "${SANITIZE:-not recorded}" "$suite"/[a-z]*.py "$suite"/[a-z]*/[a-z]*.py >"$out/sanitizer_$tool.log" 2>&1
    echo $? >"$out/sanitizer_$tool.status") &
    pids+=($!)
  done
  wait "${pids[@]}"
  for tool in $tools; do
    note "$tool: exit status $(cat "$out/sanitizer_$tool.status"), $(grep -c 'ERROR SUMMARY: 0 errors' "$out/sanitizer_$tool.log") processes without a finding, \
$(grep 'ERROR SUMMARY' "$out/sanitizer_$tool.log" | grep -vc ' 0 errors') with; $(grep -E '[0-9]+ passed' "$out/sanitizer_$tool.log" | tail -1)"
    grep -aE "========= (Error|Warning):" "$out/sanitizer_$tool.log" | cut -c1-240 | sort | uniq -c | sort -rn | head -5
    [ "$(cat "$out/sanitizer_$tool.status")" = 0 ] || status=1
  done
}

run_bench() {
  build_kernels
  dualdnn bench --vendor "library:$vendor" --out "$out" ${BENCH:+-k "$BENCH"} || status=1
  [ ! -f "$out/compliance.json" ] || keep_report  # it has the rows now
}

for step in $steps; do
  note "$step"
  "run_$step"
done
note "done, status $status"
exit $status
