# SPDX-License-Identifier: BSD-3-Clause
#
# softhca: included by the top-level Makefile.am. It knows nothing of the component, nor the component of it.

softhca_cppflags = -I$(top_srcdir)/contrib/softhca $(IBVERBS_CFLAGS) $(RDMACM_CFLAGS)
softhca_ldflags = $(AM_LDFLAGS) $(COMPONENT_LDFLAGS) -module -avoid-version -shared

softhcadir = $(libdir)/softhca
softhca_LTLIBRARIES = contrib/softhca/libsofthca.la contrib/softhca/libsofthca_fs.la

noinst_LTLIBRARIES += contrib/softhca/libsofthca_objects.la
contrib_softhca_libsofthca_objects_la_SOURCES = \
	contrib/softhca/fabric/arena.cc \
	contrib/softhca/fabric/arena.h \
	contrib/softhca/fabric/config.cc \
	contrib/softhca/fabric/config.h \
	contrib/softhca/fabric/directory.cc \
	contrib/softhca/fabric/directory.h \
	contrib/softhca/fabric/fabric.cc \
	contrib/softhca/fabric/fabric.h \
	contrib/softhca/fabric/layout.h \
	contrib/softhca/fabric/layout_magic.h \
	contrib/softhca/fabric/life_mark.cc \
	contrib/softhca/fabric/life_mark.h \
	contrib/softhca/fabric/nearest.cc \
	contrib/softhca/fabric/nearest.h \
	contrib/softhca/fabric/of_member.h \
	contrib/softhca/fabric/quantity.cc \
	contrib/softhca/fabric/qp_state.h \
	contrib/softhca/fabric/quantity.h \
	contrib/softhca/fabric/robust_lock.cc \
	contrib/softhca/fabric/robust_lock.h \
	contrib/softhca/fabric/traffic.h \
	contrib/softhca/device/attributes.cc \
	contrib/softhca/device/attributes.h \
	contrib/softhca/device/port.cc \
	contrib/softhca/device/port.h \
	contrib/softhca/link/link.cc \
	contrib/softhca/link/link.h \
	contrib/softhca/link/wire.h \
	contrib/softhca/verbs/address_handle.cc \
	contrib/softhca/verbs/address_handle.h \
	contrib/softhca/verbs/async_events.cc \
	contrib/softhca/verbs/call.h \
	contrib/softhca/verbs/comp_channel.cc \
	contrib/softhca/verbs/completion_queue.cc \
	contrib/softhca/verbs/completion_queue.h \
	contrib/softhca/verbs/context.cc \
	contrib/softhca/verbs/cq_ex.cc \
	contrib/softhca/verbs/device_list.cc \
	contrib/softhca/verbs/device_memory.cc \
	contrib/softhca/verbs/device_memory.h \
	contrib/softhca/verbs/event_fd.h \
	contrib/softhca/verbs/export.h \
	contrib/softhca/verbs/flow.cc \
	contrib/softhca/verbs/import.cc \
	contrib/softhca/verbs/index_pool.h \
	contrib/softhca/verbs/marshal.cc \
	contrib/softhca/verbs/memory_region.cc \
	contrib/softhca/verbs/memory_region.h \
	contrib/softhca/verbs/memory_window.cc \
	contrib/softhca/verbs/multicast.cc \
	contrib/softhca/verbs/multicast.h \
	contrib/softhca/verbs/objects.h \
	contrib/softhca/verbs/on_demand.cc \
	contrib/softhca/verbs/parent_domain.cc \
	contrib/softhca/verbs/parent_domain.h \
	contrib/softhca/verbs/pd.cc \
	contrib/softhca/verbs/port_events.cc \
	contrib/softhca/verbs/port_events.h \
	contrib/softhca/verbs/qp_create.cc \
	contrib/softhca/verbs/qp_ex.cc \
	contrib/softhca/verbs/qp_ex.h \
	contrib/softhca/verbs/qp_modify.cc \
	contrib/softhca/verbs/qp_query.cc \
	contrib/softhca/verbs/qp_states.h \
	contrib/softhca/verbs/query.cc \
	contrib/softhca/verbs/receive_ring.h \
	contrib/softhca/verbs/srq.cc \
	contrib/softhca/verbs/strings.cc \
	contrib/softhca/verbs/tables.cc \
	contrib/softhca/verbs/unsupported.cc \
	contrib/softhca/verbs/verbs_ops.h \
	contrib/softhca/verbs/xrcd.cc \
	contrib/softhca/verbs/xrcd.h \
	contrib/softhca/transport/adding.h \
	contrib/softhca/transport/arrival.cc \
	contrib/softhca/transport/arrival.h \
	contrib/softhca/transport/atomics.cc \
	contrib/softhca/transport/completing.h \
	contrib/softhca/transport/completion.cc \
	contrib/softhca/transport/copy_service.cc \
	contrib/softhca/transport/copy_service.h \
	contrib/softhca/transport/datagram.cc \
	contrib/softhca/transport/engine.cc \
	contrib/softhca/transport/engine.h \
	contrib/softhca/transport/flush.cc \
	contrib/softhca/transport/futex.h \
	contrib/softhca/transport/gather.h \
	contrib/softhca/transport/keys.cc \
	contrib/softhca/transport/keys.h \
	contrib/softhca/transport/landing.h \
	contrib/softhca/transport/message.h \
	contrib/softhca/transport/mutex.h \
	contrib/softhca/transport/poll.cc \
	contrib/softhca/transport/polling_stopped.h \
	contrib/softhca/transport/prefetch.h \
	contrib/softhca/transport/raw_packet.cc \
	contrib/softhca/transport/receive.cc \
	contrib/softhca/transport/remote_memory.cc \
	contrib/softhca/transport/remote_memory.h \
	contrib/softhca/transport/requester.cc \
	contrib/softhca/transport/requester.h \
	contrib/softhca/transport/responder.cc \
	contrib/softhca/transport/send_queue.cc \
	contrib/softhca/transport/send_queue.h \
	contrib/softhca/transport/send_ring.h \
	contrib/softhca/transport/short_route.cc \
	contrib/softhca/transport/short_route.h \
	contrib/softhca/transport/short_send.cc \
	contrib/softhca/transport/taking.h \
	contrib/softhca/transport/transport.h \
	contrib/softhca/transport/unanswered.cc \
	contrib/softhca/transport/unanswered.h \
	contrib/softhca/cm/address.cc \
	contrib/softhca/cm/address.h \
	contrib/softhca/cm/addrinfo.cc \
	contrib/softhca/cm/channel.cc \
	contrib/softhca/cm/connect.cc \
	contrib/softhca/cm/endpoint.cc \
	contrib/softhca/cm/identifier.cc \
	contrib/softhca/cm/identifier.h \
	contrib/softhca/cm/listeners.cc \
	contrib/softhca/cm/listeners.h \
	contrib/softhca/cm/mail.cc \
	contrib/softhca/cm/multicast.cc \
	contrib/softhca/cm/multicast.h \
	contrib/softhca/cm/options.cc \
	contrib/softhca/cm/qp.cc \
	contrib/softhca/cm/requests.cc \
	contrib/softhca/cm/resolve.cc \
	contrib/softhca/cm/wire.h \
	contrib/softhca/faults/faults.cc \
	contrib/softhca/faults/faults.h \
	contrib/softhca/faults/kill_at.h \
	contrib/softhca/faults/rules.cc \
	contrib/softhca/faults/rules.h
contrib_softhca_libsofthca_objects_la_CPPFLAGS = $(softhca_cppflags)
contrib_softhca_libsofthca_objects_la_LIBADD = -ldl

contrib_softhca_libsofthca_la_SOURCES =
# It has no sources of its own: this makes automake link it as C++.
nodist_EXTRA_contrib_softhca_libsofthca_la_SOURCES = none.cc
contrib_softhca_libsofthca_la_LDFLAGS = $(softhca_ldflags) -Wl,--version-script=$(srcdir)/contrib/softhca/exports.map
contrib_softhca_libsofthca_la_DEPENDENCIES = contrib/softhca/libsofthca_objects.la contrib/softhca/exports.map
contrib_softhca_libsofthca_la_LIBADD = contrib/softhca/libsofthca_objects.la

contrib_softhca_libsofthca_fs_la_SOURCES = contrib/softhca/fs_names.cc
contrib_softhca_libsofthca_fs_la_LDFLAGS = $(softhca_ldflags)
contrib_softhca_libsofthca_fs_la_LIBADD = -ldl

# Libraries of the names that programs give to dlopen: they have the versions of the real ones, and lead to libsofthca.so.
softhca_drop_in = contrib/softhca/.libs/drop-in/libibverbs.so.1 contrib/softhca/.libs/drop-in/librdmacm.so.1
drop_indir = $(softhcadir)/drop-in
nodist_drop_in_DATA = $(softhca_drop_in)
softhca_versions = sed -n "s/^\($$prefix[0-9.]*\) {.*/\1 {};/p" $(srcdir)/contrib/softhca/exports.map
$(softhca_drop_in): contrib/softhca/libsofthca.la contrib/softhca/exports.map
	$(AM_V_GEN)$(MKDIR_P) $(@D) && case $@ in *ibverbs*) prefix=IBVERBS_ ;; *) prefix=RDMACM_ ;; esac && \
	  $(softhca_versions) >$@.map && \
	  $(CC) -shared -nostdlib -Wl,-soname,$(@F) -Wl,--version-script=$@.map -Wl,-rpath,'$$ORIGIN/..' -Wl,--no-as-needed -Wl,-z,noexecstack \
	    contrib/softhca/.libs/libsofthca.so -lc -o $@
CLEANFILES = $(softhca_drop_in) $(softhca_drop_in:=.map)

bin_PROGRAMS = contrib/softhca/softhca-ctl
contrib_softhca_softhca_ctl_SOURCES = \
	contrib/softhca/ctl/fabric_view.cc \
	contrib/softhca/ctl/fabric_view.h \
	contrib/softhca/ctl/files.cc \
	contrib/softhca/ctl/files.h \
	contrib/softhca/ctl/find_fabric.cc \
	contrib/softhca/ctl/find_fabric.h \
	contrib/softhca/ctl/softhca_ctl.cc \
	contrib/softhca/ctl/start.cc \
	contrib/softhca/ctl/start.h \
	contrib/softhca/ctl/top.cc \
	contrib/softhca/ctl/top.h \
	contrib/softhca/ctl/usage.cc \
	contrib/softhca/ctl/usage.h \
	contrib/softhca/fabric/config.cc \
	contrib/softhca/fabric/directory.cc \
	contrib/softhca/fabric/nearest.cc \
	contrib/softhca/fabric/quantity.cc \
	contrib/softhca/faults/rules.cc
contrib_softhca_softhca_ctl_CPPFLAGS = $(softhca_cppflags) -DSOFTHCA_VERSION=\"$(SOFTHCA_VERSION)\"

bin_SCRIPTS = contrib/softhca/softhca-run
contrib/softhca/softhca-run: contrib/softhca/softhca-run.in Makefile
	$(AM_V_GEN)$(MKDIR_P) $(@D) && sed 's|@libdir[@]|$(libdir)|;s|@SOFTHCA_VERSION[@]|$(SOFTHCA_VERSION)|' $(srcdir)/contrib/softhca/softhca-run.in >$@.new && \
	  chmod +x $@.new && mv $@.new $@
CLEANFILES += contrib/softhca/softhca-run

dist_man_MANS = contrib/softhca/softhca-ctl.1 contrib/softhca/softhca-run.1 contrib/softhca/softhca.7
EXTRA_DIST += contrib/softhca/README.md contrib/softhca/FABTESTS.md contrib/softhca/PYVERBS.md contrib/softhca/exports.map \
	contrib/softhca/softhca-run.in

# The loader wants the .so alone.
softhca-install-hook:
	rm -f $(DESTDIR)$(softhcadir)/libsofthca.la $(DESTDIR)$(softhcadir)/libsofthca_fs.la
softhca-uninstall-hook:
	rm -f $(DESTDIR)$(softhcadir)/libsofthca.so $(DESTDIR)$(softhcadir)/libsofthca_fs.so

# --- Tests: programs that know nothing of softhca, which the scripts run on every kind of device; and one of its tables

softhca_tests = \
	test/softhca/between.test \
	test/softhca/cm.test \
	test/softhca/dlopen.test \
	test/softhca/ends.test \
	test/softhca/exports.test \
	test/softhca/features.test \
	test/softhca/join.test \
	test/softhca/kill.test \
	test/softhca/instructions.test \
	test/softhca/link.test \
	test/softhca/manuals.test \
	test/softhca/messages.test \
	test/softhca/objects.test \
	test/softhca/run.test \
	test/softhca/storm.test \
	test/softhca/stores.test \
	test/softhca/top.test
TESTS += $(softhca_tests)
EXTRA_DIST += $(softhca_tests) test/softhca/programs.sh test/softhca/run-programs

softhca_test_cppflags = -I$(top_srcdir) $(CHECK_CFLAGS) $(IBVERBS_CFLAGS) $(RDMACM_CFLAGS)
softhca_test_ldadd = $(CHECK_LIBS) $(RDMACM_LIBS) $(IBVERBS_LIBS) -lpthread
softhca_test_headers = test/softhca/cm_world.h test/softhca/verbs_world.h test/softhca/xrc_world.h test/unit/check_main.h
between_headers = test/softhca/between.h test/softhca/two_processes.h $(softhca_test_headers)

check_PROGRAMS += test/softhca/test_softhca_kill test/softhca/test_softhca_storm test/softhca/test_softhca_stores \
	test/softhca/test_softhca_traffic \
	test/softhca/test_softhca_dlopen \
	test/softhca/forbid_cma
test_softhca_test_softhca_kill_SOURCES = test/softhca/test_softhca_kill.cc test/softhca/bare_verbs.h
test_softhca_test_softhca_kill_CPPFLAGS = -I$(top_srcdir) $(IBVERBS_CFLAGS)
test_softhca_test_softhca_kill_LDADD = $(IBVERBS_LIBS)
test_softhca_test_softhca_storm_SOURCES = test/softhca/test_softhca_storm.cc test/softhca/storm_board.h test/softhca/storm_link.h \
	test/softhca/storm_memory.h test/softhca/storm_peer.h test/softhca/storm_verbs.h
test_softhca_test_softhca_storm_CPPFLAGS = -I$(top_srcdir) $(IBVERBS_CFLAGS)
test_softhca_test_softhca_storm_LDADD = $(IBVERBS_LIBS)
test_softhca_test_softhca_stores_SOURCES = test/softhca/test_softhca_stores.cc test/softhca/bare_verbs.h test/softhca/stores_world.h
test_softhca_test_softhca_stores_CPPFLAGS = $(softhca_cppflags) -I$(top_srcdir)
test_softhca_test_softhca_stores_LDADD = $(IBVERBS_LIBS)
test_softhca_test_softhca_traffic_SOURCES = test/softhca/test_softhca_traffic.cc
test_softhca_test_softhca_traffic_CPPFLAGS = $(IBVERBS_CFLAGS)
test_softhca_test_softhca_traffic_LDADD = $(IBVERBS_LIBS)
test_softhca_test_softhca_dlopen_SOURCES = test/softhca/test_softhca_dlopen.cc
test_softhca_test_softhca_dlopen_CPPFLAGS = $(IBVERBS_CFLAGS) $(RDMACM_CFLAGS)
test_softhca_test_softhca_dlopen_LDADD = -ldl
test_softhca_forbid_cma_SOURCES = test/softhca/forbid_cma.cc

if CHECK
check_PROGRAMS += \
	test/softhca/test_softhca_across \
	test/softhca/test_softhca_between_ends \
	test/softhca/test_softhca_between_errors \
	test/softhca/test_softhca_between_faults \
	test/softhca/test_softhca_between_memory \
	test/softhca/test_softhca_between_messages \
	test/softhca/test_softhca_between_windows \
	test/softhca/test_softhca_cm \
	test/softhca/test_softhca_cm_ids \
	test/softhca/test_softhca_dereg \
	test/softhca/test_softhca_ends \
	test/softhca/test_softhca_extended \
	test/softhca/test_softhca_flights \
	test/softhca/test_softhca_wakes \
	test/softhca/test_softhca_fabric \
	test/softhca/test_softhca_landing \
	test/softhca/test_softhca_landing_ring \
	test/softhca/test_softhca_link \
	test/softhca/test_softhca_objects \
	test/softhca/test_softhca_on_demand \
	test/softhca/test_softhca_device_memory \
	test/softhca/test_softhca_domains \
	test/softhca/test_softhca_import \
	test/softhca/test_softhca_gids \
	test/softhca/test_softhca_atomic_write \
	test/softhca/test_softhca_fork \
	test/softhca/test_softhca_raw_packet \
	test/softhca/test_softhca_multicast \
	test/softhca/test_softhca_polls \
	test/softhca/test_softhca_requests \
	test/softhca/test_softhca_routes \
	test/softhca/test_softhca_sizes \
	test/softhca/test_softhca_states \
	test/softhca/test_softhca_tables \
	test/softhca/test_softhca_taken \
	test/softhca/test_softhca_threads \
	test/softhca/test_softhca_xrc
TESTS += test/softhca/test_softhca_landing_ring test/softhca/test_softhca_link test/softhca/test_softhca_states test/softhca/test_softhca_tables
endif
test_softhca_test_softhca_across_SOURCES = test/softhca/test_softhca_across.cc test/softhca/two_processes.h $(softhca_test_headers)
test_softhca_test_softhca_across_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_across_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_between_ends_SOURCES = test/softhca/test_softhca_between_ends.cc $(between_headers)
test_softhca_test_softhca_between_ends_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_between_ends_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_between_errors_SOURCES = test/softhca/test_softhca_between_errors.cc $(between_headers)
test_softhca_test_softhca_between_errors_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_between_errors_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_between_faults_SOURCES = test/softhca/test_softhca_between_faults.cc $(between_headers)
test_softhca_test_softhca_between_faults_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_between_faults_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_between_memory_SOURCES = test/softhca/test_softhca_between_memory.cc $(between_headers)
test_softhca_test_softhca_between_memory_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_between_memory_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_between_messages_SOURCES = test/softhca/test_softhca_between_messages.cc $(between_headers)
test_softhca_test_softhca_between_messages_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_between_messages_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_between_windows_SOURCES = test/softhca/test_softhca_between_windows.cc $(between_headers)
test_softhca_test_softhca_between_windows_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_between_windows_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_cm_SOURCES = test/softhca/test_softhca_cm.cc $(softhca_test_headers)
test_softhca_test_softhca_cm_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_cm_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_cm_ids_SOURCES = test/softhca/test_softhca_cm_ids.cc $(softhca_test_headers)
test_softhca_test_softhca_cm_ids_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_cm_ids_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_dereg_SOURCES = test/softhca/test_softhca_dereg.cc test/softhca/fabric_file.h $(softhca_test_headers)
test_softhca_test_softhca_dereg_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_dereg_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_ends_SOURCES = test/softhca/test_softhca_ends.cc test/softhca/two_processes.h $(softhca_test_headers)
test_softhca_test_softhca_ends_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_ends_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_extended_SOURCES = test/softhca/test_softhca_extended.cc $(softhca_test_headers)
test_softhca_test_softhca_extended_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_extended_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_fabric_SOURCES = test/softhca/test_softhca_fabric.cc test/softhca/fabric_file.h test/softhca/two_processes.h $(softhca_test_headers)
test_softhca_test_softhca_fabric_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_fabric_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_flights_SOURCES = test/softhca/test_softhca_flights.cc $(softhca_test_headers)
test_softhca_test_softhca_flights_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_flights_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_wakes_SOURCES = test/softhca/test_softhca_wakes.cc $(softhca_test_headers)
test_softhca_test_softhca_wakes_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_wakes_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_landing_SOURCES = test/softhca/test_softhca_landing.cc $(softhca_test_headers)
test_softhca_test_softhca_landing_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_landing_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_landing_ring_SOURCES = test/softhca/test_softhca_landing_ring.cc test/unit/check_main.h
test_softhca_test_softhca_landing_ring_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_landing_ring_LDADD = $(CHECK_LIBS) -lpthread
test_softhca_test_softhca_link_SOURCES = test/softhca/test_softhca_link.cc test/unit/check_main.h
test_softhca_test_softhca_link_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_link_LDADD = contrib/softhca/libsofthca_objects.la $(CHECK_LIBS) -lpthread
test_softhca_test_softhca_objects_SOURCES = test/softhca/test_softhca_objects.cc $(softhca_test_headers)
test_softhca_test_softhca_objects_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_objects_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_on_demand_SOURCES = test/softhca/test_softhca_on_demand.cc $(softhca_test_headers)
test_softhca_test_softhca_on_demand_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_on_demand_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_device_memory_SOURCES = test/softhca/test_softhca_device_memory.cc $(softhca_test_headers)
test_softhca_test_softhca_device_memory_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_device_memory_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_domains_SOURCES = test/softhca/test_softhca_domains.cc $(softhca_test_headers)
test_softhca_test_softhca_domains_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_domains_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_import_SOURCES = test/softhca/test_softhca_import.cc $(softhca_test_headers)
test_softhca_test_softhca_import_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_import_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_gids_SOURCES = test/softhca/test_softhca_gids.cc $(softhca_test_headers)
test_softhca_test_softhca_gids_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_gids_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_atomic_write_SOURCES = test/softhca/test_softhca_atomic_write.cc $(softhca_test_headers)
test_softhca_test_softhca_atomic_write_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_atomic_write_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_fork_SOURCES = test/softhca/test_softhca_fork.cc $(softhca_test_headers)
test_softhca_test_softhca_fork_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_fork_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_raw_packet_SOURCES = test/softhca/test_softhca_raw_packet.cc $(softhca_test_headers)
test_softhca_test_softhca_raw_packet_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_raw_packet_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_multicast_SOURCES = test/softhca/test_softhca_multicast.cc $(softhca_test_headers)
test_softhca_test_softhca_multicast_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_multicast_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_polls_SOURCES = test/softhca/test_softhca_polls.cc $(softhca_test_headers)
test_softhca_test_softhca_polls_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_polls_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_requests_SOURCES = test/softhca/test_softhca_requests.cc $(softhca_test_headers)
test_softhca_test_softhca_requests_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_requests_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_routes_SOURCES = test/softhca/test_softhca_routes.cc test/softhca/two_processes.h $(softhca_test_headers)
test_softhca_test_softhca_routes_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_routes_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_sizes_SOURCES = test/softhca/test_softhca_sizes.cc $(softhca_test_headers)
test_softhca_test_softhca_sizes_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_sizes_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_taken_SOURCES = test/softhca/test_softhca_taken.cc test/softhca/fabric_file.h test/softhca/two_processes.h $(softhca_test_headers)
test_softhca_test_softhca_taken_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_taken_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_threads_SOURCES = test/softhca/test_softhca_threads.cc $(softhca_test_headers)
test_softhca_test_softhca_threads_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_threads_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_xrc_SOURCES = test/softhca/test_softhca_xrc.cc $(softhca_test_headers)
test_softhca_test_softhca_xrc_CPPFLAGS = $(softhca_test_cppflags)
test_softhca_test_softhca_xrc_LDADD = $(softhca_test_ldadd)
test_softhca_test_softhca_states_SOURCES = test/softhca/test_softhca_states.cc test/unit/check_main.h
test_softhca_test_softhca_states_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_states_LDADD = $(CHECK_LIBS) -lpthread
test_softhca_test_softhca_tables_SOURCES = test/softhca/test_softhca_tables.cc test/unit/check_main.h
test_softhca_test_softhca_tables_CPPFLAGS = $(softhca_cppflags) $(softhca_test_cppflags)
test_softhca_test_softhca_tables_LDADD = contrib/softhca/libsofthca_objects.la $(CHECK_LIBS) -lpthread
