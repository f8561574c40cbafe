// SPDX-License-Identifier: BSD-3-Clause
//
// The child of ask_open_mpi(): inside Open MPI, whose library it loads when it runs, so that fabric_doctor itself starts where that
// cannot be loaded.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "btl_fabric/base/opal.h"
#include "contrib/fabric_doctor/open_mpi.h"

namespace fabric::doctor {
namespace {

constexpr const char* kLibrary = "libmpi.so.40";  // of Open MPI 4.1 and of 5.0
constexpr const char* kOurComponent = "mca_btl_fabric.so";

/// Functions and variables of Open MPI, by name.
class OpenMpi {
 public:
  OpenMpi() : library_(dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL)) {
    if (library_ == nullptr) {
      library_ = dlopen(FABRIC_MPI_LIBDIR "/libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
    }
  }
  [[nodiscard]] bool is_loaded() const noexcept { return library_ != nullptr; }
  /// Null if there is none.
  template <class T>
  [[nodiscard]] T* symbol(const char* name) const noexcept {
    return reinterpret_cast<T*>(dlsym(library_, name));
  }

 private:
  void* library_;
};

std::string source_of(mca_base_var_source_t source, const char* file) {
  if (file != nullptr) {
    return file;
  }
  return source == MCA_BASE_VAR_SOURCE_ENV ? "the environment" : "Open MPI itself";
}

/// Text and numbers; others are not asked for.
std::string value_of(const mca_base_var_t& variable) {
  const mca_base_var_storage_t* const value = variable.mbv_storage;
  if (value == nullptr) {
    return {};
  }
  switch (variable.mbv_type) {
    case MCA_BASE_VAR_TYPE_STRING:
    case MCA_BASE_VAR_TYPE_VERSION_STRING:
      return value->stringval == nullptr ? "" : value->stringval;
    case MCA_BASE_VAR_TYPE_INT:
      return std::to_string(value->intval);
    case MCA_BASE_VAR_TYPE_UNSIGNED_INT:
      return std::to_string(value->uintval);
    case MCA_BASE_VAR_TYPE_BOOL:
      return value->boolval ? "1" : "0";
    case MCA_BASE_VAR_TYPE_SIZE_T:
      return std::to_string(value->sizetval);
    default:
      return {};
  }
}

constexpr std::string_view kOurs = "btl_fabric_";

/// A parameter of ours as the user wrote it: the component reads words and units of time, which Open MPI takes for other numbers.
std::string written(const mca_base_var_t& variable) {
  const char* text = std::getenv(("OMPI_MCA_" + std::string(variable.mbv_full_name)).c_str());
  if (variable.mbv_file_value != nullptr && (text == nullptr || variable.mbv_source == MCA_BASE_VAR_SOURCE_OVERRIDE)) {
    text = static_cast<const mca_base_var_file_value_t*>(variable.mbv_file_value)->mbvfv_value;
  }
  return text == nullptr ? value_of(variable) : text;
}

bool is_wanted(std::string_view name) {
  return name == "pml" || name == "btl" || name == "mca_base_component_path" || name == "mca_base_param_files" ||
         name.starts_with(kOurs) || (name.starts_with("pml_") && name.ends_with("_priority"));
}

void read_settings(const OpenMpi& mpi, OpenMpiView& view) {
  view.settings.clear();
  const auto count = mpi.symbol<decltype(mca_base_var_get_count)>("mca_base_var_get_count");
  const auto get = mpi.symbol<decltype(mca_base_var_get)>("mca_base_var_get");
  const auto get_value = mpi.symbol<decltype(mca_base_var_get_value)>("mca_base_var_get_value");
  if (count == nullptr || get == nullptr || get_value == nullptr) {
    return;
  }
  const int total = count();
  for (int i = 0; i < total; ++i) {
    const mca_base_var_t* variable = nullptr;
    if (get(i, &variable) != OPAL_SUCCESS || variable->mbv_full_name == nullptr ||
        !is_wanted(variable->mbv_full_name)) {
      continue;
    }
    mca_base_var_source_t source = MCA_BASE_VAR_SOURCE_DEFAULT;
    const char* file = nullptr;
    const bool is_set = get_value(i, nullptr, &source, &file) == OPAL_SUCCESS && source != MCA_BASE_VAR_SOURCE_DEFAULT;
    const bool is_ours = std::string_view(variable->mbv_full_name).starts_with(kOurs);
    view.settings.push_back({variable->mbv_full_name, is_set && is_ours ? written(*variable) : value_of(*variable),
                             is_set ? source_of(source, file) : "", is_set});
  }
}

opal_list_item_t* next_of(const opal_list_item_t* item) noexcept {
  return const_cast<opal_list_item_t*>(item->opal_list_next);
}

/// What Open MPI has chosen, after MPI_Init.
void read_choice(const OpenMpi& mpi, OpenMpiView& view) {
  // An mca_pml_base_component_t, whose headers are not installed everywhere; it begins with this.
  if (const auto* pml = mpi.symbol<mca_base_component_t>("mca_pml_base_selected_component"); pml != nullptr) {
    view.pml = pml->mca_component_name;
  }
  auto* const modules = mpi.symbol<opal_list_t>("mca_btl_base_modules_initialized");
  if (modules == nullptr) {
    return;
  }
  opal_list_item_t* const end = &modules->opal_list_sentinel;
  for (auto* item = next_of(end); item != end; item = next_of(item)) {
    const auto* const chosen = reinterpret_cast<const mca_btl_base_selected_module_t*>(item);
    const MpiBtl btl{chosen->btl_component->btl_version.mca_component_name, chosen->btl_module->btl_exclusivity};
    const auto is_same = [&btl](const MpiBtl& one) { return one.name == btl.name; };
    if (std::none_of(view.btls.begin(), view.btls.end(), is_same)) {
      view.btls.push_back(btl);
    }
  }
}

/// Our component, in the first of the folders that has it; null if it cannot be loaded.
const mca_base_component_t* find_component(OpenMpiView& view) {
  const mca_base_component_t* result = nullptr;
  const MpiSetting* const path = view.find("mca_base_component_path");
  std::istringstream folders(path == nullptr ? std::string() : path->value);
  for (std::string folder; std::getline(folders, folder, ':');) {
    view.folders.push_back(folder);
    const std::string file = folder + "/" + kOurComponent;
    std::error_code none;
    if (!view.component.empty() || !std::filesystem::exists(file, none)) {
      continue;
    }
    view.component = file;
    void* const library = dlopen(file.c_str(), RTLD_LAZY);
    if (library == nullptr) {
      const char* const why = dlerror();
      view.load_error = why == nullptr ? "dlopen fails" : why;
    } else if (const void* component = dlsym(library, "mca_btl_fabric_component"); component != nullptr) {
      result = static_cast<const mca_base_component_t*>(component);
      view.component_version = std::to_string(result->mca_component_major_version) + "." +
                               std::to_string(result->mca_component_minor_version) + "." +
                               std::to_string(result->mca_component_release_version);
    }
  }
  return result;
}

/// Open MPI forgets the parameters of a component that it does not use, and the user wants to know what is wrong with them.
void register_again(const OpenMpi& mpi, const mca_base_component_t* component, OpenMpiView& view) {
  const bool are_known = std::any_of(view.settings.begin(), view.settings.end(),
                                     [](const MpiSetting& one) { return one.name.starts_with(kOurs); });
  if (component != nullptr && component->mca_register_component_params != nullptr && !are_known) {
    component->mca_register_component_params();
    read_settings(mpi, view);
  }
}

/// "4.1.4" of "Open MPI v4.1.4, package: ...".
std::string version_of(const OpenMpi& mpi) {
  std::array<char, 4096> text{};
  int size = 0;
  const auto ask = mpi.symbol<int(char*, int*)>("MPI_Get_library_version");
  if (ask == nullptr || ask(text.data(), &size) != 0) {
    return "?";
  }
  const std::string said(text.data());
  const std::size_t begin = said.find('v');
  return begin == std::string::npos ? said : said.substr(begin + 1, said.find(',') - begin - 1);
}

}  // namespace

int answer_for_open_mpi(int descriptor) {
  const OpenMpi mpi;
  OpenMpiView view;
  const auto init = mpi.is_loaded() ? mpi.symbol<int(int*, char***)>("MPI_Init") : nullptr;
  if (init == nullptr) {
    const char* const why = dlerror();
    view.failure = std::string("Open MPI cannot be loaded: ") + (why == nullptr ? kLibrary : why);
  } else if (const int error = init(nullptr, nullptr); error != 0) {
    view.failure = "MPI_Init fails with error " + std::to_string(error);
  } else {
    view.version = version_of(mpi);
    read_settings(mpi, view);
    read_choice(mpi, view);
    register_again(mpi, find_component(view), view);
  }
  nlohmann::ordered_json json;
  to_json(json, view);
  const std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const bool is_written = write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(descriptor);
  if (const auto finalize = mpi.is_loaded() ? mpi.symbol<int()>("MPI_Finalize") : nullptr;
      finalize != nullptr && view.failure.empty()) {
    finalize();
  }
  return is_written ? 0 : 1;
}

}  // namespace fabric::doctor
