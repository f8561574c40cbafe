// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "contrib/fabric_doctor/checks/check_list.h"

namespace fabric::doctor {
namespace {

constexpr const char* kChooseUs =
    "mpirun --mca pml ob1 --mca btl fabric,self,vader (sm instead of vader in Open MPI 5.0)";

/// "btl = tcp,self (by the environment)"; empty if it is not set.
std::string setting(const OpenMpiView& view, const std::string& name) {
  const MpiSetting* const found = view.find(name);
  return found == nullptr || !found->is_set ? "" : name + " = " + found->value + ", by " + found->source;
}

std::string priority(const OpenMpiView& view, const std::string& pml) {
  const MpiSetting* const found = view.find("pml_" + pml + "_priority");
  return found == nullptr ? "" : pml + " has priority " + found->value;
}

std::string names(const OpenMpiView& view) {
  std::string all;
  for (const MpiBtl& one : view.btls) {
    all += (all.empty() ? "" : ", ") + one.name;
  }
  return all;
}

std::string in_brackets(const std::string& text) {
  return text.empty() ? "" : " (" + text + ")";
}

Finding other_pml(const OpenMpiView& view) {
  std::string why = setting(view, "pml");
  for (const std::string& text : {priority(view, view.pml), priority(view, "ob1")}) {
    why += (why.empty() || text.empty() ? "" : "; ") + text;
  }
  return fail("the PML " + view.pml + " wins" + in_brackets(why) + ": it asks no BTL, so fabric carries nothing",
              std::string(kChooseUs) + "; for all jobs pml = ob1 in openmpi-mca-params.conf");
}

/// A list of BTLs, or of those that are left out, lets ours in.
bool lets_us_in(const MpiSetting* list) {
  if (list == nullptr || list->value.empty()) {
    return true;
  }
  const bool leaves_out = list->value.front() == '^';
  const std::string names = "," + list->value.substr(leaves_out ? 1 : 0) + ",";
  return (names.find(",fabric,") != std::string::npos) != leaves_out;
}

Finding not_chosen(const OpenMpiView& view) {
  const std::string what = "the PML ob1 wins, but fabric is not among the BTLs that were chosen: " + names(view) +
                           in_brackets(setting(view, "btl")) + (view.said.empty() ? "" : "; it said: " + view.said);
  if (!lets_us_in(view.find("btl"))) {
    return fail(what, kChooseUs);
  }
  return fail(what, std::string("fabric has given up by itself: see ") +
                        (view.said.empty() ? "" : "what it said, and ") +
                        "the lines above; mpirun --mca btl fabric,self ends with its reasons");
}

/// Chosen for two processes of one host, or for this one alone.
bool is_within_a_host(const std::string& btl) {
  return btl == "self" || btl == "vader" || btl == "sm" || btl == "smcuda" || btl == "smdirect";
}

}  // namespace

Findings check_selection(const Host& host) {
  const OpenMpiView& view = host.open_mpi;
  if (!view.failure.empty()) {
    return {fail(view.failure + in_brackets(setting(view, "btl")),
                 std::string("with fabric chosen by hand: ") + kChooseUs)};
  }
  if (view.pml != "ob1") {
    return {other_pml(view)};
  }
  const auto ours =
      std::find_if(view.btls.begin(), view.btls.end(), [](const MpiBtl& one) { return one.name == "fabric"; });
  if (ours == view.btls.end()) {
    return {not_chosen(view)};
  }
  Findings findings;
  for (const MpiBtl& one : view.btls) {
    if (one.name == "fabric" || is_within_a_host(one.name) || one.exclusivity < ours->exclusivity) {
      continue;
    }
    if (one.exclusivity > ours->exclusivity) {
      findings.push_back(fail("the BTL " + one.name +
                                  " has a higher exclusivity than fabric: it carries everything to "
                                  "the peers that it reaches",
                              "leave it out: " + std::string(kChooseUs)));
    } else {
      findings.push_back(
          warn("the BTL " + one.name + " has fabric's exclusivity: large messages are divided between them",
               "leave it out: " + std::string(kChooseUs)));
    }
  }
  const std::string why = setting(view, "pml") +
                          (setting(view, "pml").empty() || setting(view, "btl").empty() ? "" : "; ") +
                          setting(view, "btl");
  findings.insert(findings.begin(), ok("the PML ob1 wins, with the BTLs " + names(view) + in_brackets(why)));
  return findings;
}

}  // namespace fabric::doctor
