package control

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-scheduler/berth/cmd/internal/cli/client"
	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	"github.com/berth-scheduler/berth/cmd/internal/cli/jobcmd"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/option"
	"github.com/berth-scheduler/berth/cmd/internal/cli/slurmcmd/terms"
	"github.com/berth-scheduler/berth/cmd/internal/sbatch"
	"github.com/berth-scheduler/berth/cmd/internal/slurm"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// showSlurmReservations is scontrol show reservation.
func showSlurmReservations(ctx context.Context, e *console.Env, c *client.Client, r *recordOptions, args []string) error {
	all, err := client.GetReservations(ctx, c, nil)
	if err != nil {
		return err
	}
	shown := 0
	for _, m := range all {
		if len(args) > 0 && m.GetName() != args[0] {
			continue
		}
		shown++
		s := terms.Reservation(m, e.Now())
		if err := r.Reservation(e.Out, &s); err != nil {
			return err
		}
	}
	switch {
	case shown == 0 && len(args) > 0:
		return option.Bare("Reservation " + args[0] + " not found")
	case shown == 0:
		e.Printf("No reservations in the system\n")
	}
	return nil
}

// settings parses the KEY=VALUE words of an update, the keys in lower case.
func settings(args []string) (set map[string]string, order []string, err error) {
	set = map[string]string{}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		key = strings.TrimSuffix(strings.ToLower(key), "+")
		if !ok {
			return nil, nil, option.Bare("Update of this parameter is not supported: " + a + "\nRequest aborted")
		}
		set[key] = value
		order = append(order, key)
	}
	return set, order, nil
}

// runScontrolChange is scontrol update, for whatever the words name.
func runScontrolChange(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	args = joined(args)
	for _, a := range args {
		key, _, _ := strings.Cut(strings.ToLower(a), "=")
		switch key {
		case "jobid", "job":
			return runScontrolJob(ctx, e, c, args)
		case "reservationname", "reservation":
			if hasKey(args, "jobid") || hasKey(args, "job") {
				continue
			}
			return runScontrolReserve(ctx, e, c, args, false)
		}
	}
	return runScontrolUpdate(ctx, c, args)
}

// joined writes the words of an update as KEY=VALUE, as Slurm also takes job 12.
func joined(args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !strings.Contains(a, "=") && i+1 < len(args) {
			i++
			a += "=" + args[i]
		}
		out = append(out, a)
	}
	return out
}

func hasKey(args []string, key string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		k, _, _ := strings.Cut(strings.ToLower(a), "=")
		return k == key
	})
}

// jobSettings are the fields of scontrol update jobid=.
var jobSettings = map[string]func(e *console.Env, r *apiv1.UpdateJobRequest, v string) error{
	"jobname":         func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Name = &v; return nil },
	"name":            func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Name = &v; return nil },
	"comment":         func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Comment = &v; return nil },
	"partition":       func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Partition = &v; return nil },
	"account":         func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Account = &v; return nil },
	"qos":             func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Qos = &v; return nil },
	"features":        func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Features = &v; return nil },
	"reqnodelist":     func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.NodeList = &v; return nil },
	"nodelist":        func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.NodeList = &v; return nil },
	"excnodelist":     func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Exclude = &v; return nil },
	"reservation":     func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Reservation = &v; return nil },
	"reservationname": func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error { r.Reservation = &v; return nil },
	"starttime":       jobcmd.SetUpdateBegin,
	"dependency":      jobcmd.SetUpdateDepends,
	"nice": func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		r.Nice = new(int32(n))
		return err
	},
	"timelimit": func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
		limit, limited, err := sbatch.ParseTime(v)
		if !limited {
			limit = 0
		}
		r.TimeLimit = durationpb.New(limit)
		return err
	},
	"numnodes": func(_ *console.Env, r *apiv1.UpdateJobRequest, v string) error {
		n, err := strconv.ParseUint(v, 10, 16)
		r.Nodes = new(uint32(n))
		return err
	},
}

// arrayThrottle removes ArrayTaskThrottle=N from the settings and applies it.
func arrayThrottle(ctx context.Context, e *console.Env, c *client.Client, ids []uint64, v string) error {
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil {
		return option.Bare("Invalid ArrayTaskThrottle value")
	}
	quiet := *e
	quiet.Out = bufio.NewWriter(io.Discard) // scontrol prints nothing
	for _, id := range ids {
		if err := jobcmd.Throttle(ctx, &quiet, c, id, uint32(n)); err != nil {
			return err
		}
	}
	return nil
}

func runScontrolJob(ctx context.Context, e *console.Env, c *client.Client, args []string) error {
	set, order, err := settings(args)
	if err != nil {
		return err
	}
	list := set["jobid"]
	if list == "" {
		list = set["job"]
	}
	ids, tasks, err := console.ParseJobs([]string{list})
	if err != nil || len(ids)+len(tasks) == 0 {
		return option.Bare("Invalid job id specified")
	}
	all := slices.Clone(ids) // for a task, this applies to its array
	for _, r := range tasks {
		all = append(all, r.Array)
	}
	if v, ok := set["arraytaskthrottle"]; ok && len(order) == 2 {
		return arrayThrottle(ctx, e, c, all, v)
	}
	if v, ok := set["priority"]; ok {
		if order, err = setPriority(ctx, e, c, all, v, order); err != nil || len(order) < 2 {
			return err
		}
	}
	reqs := make([]*apiv1.UpdateJobRequest, 0, len(ids)+len(tasks))
	for _, id := range ids {
		reqs = append(reqs, &apiv1.UpdateJobRequest{Id: id})
	}
	for _, r := range tasks {
		reqs = append(reqs, &apiv1.UpdateJobRequest{Id: r.Array, Tasks: r.Tasks})
	}
	for _, req := range reqs {
		sign := 0
		for _, key := range order {
			if key == "jobid" || key == "job" {
				continue
			}
			do, ok := jobSettings[key]
			if !ok {
				return option.Bare("Update of this parameter is not supported: " + key + "=" + set[key] + "\nRequest aborted")
			}
			v := set[key]
			if key == "timelimit" {
				sign, v = jobcmd.Signed(v)
			}
			if err := do(e, req, v); err != nil {
				return option.Bare(fmt.Sprintf("Invalid %s value: %s\nRequest aborted", key, set[key]))
			}
		}
		if err := jobcmd.Update(ctx, e, c, req, sign); err != nil {
			return updateFault(err, req.Id)
		}
	}
	return nil
}

// runScontrolReserve creates or changes a reservation.
func runScontrolReserve(ctx context.Context, e *console.Env, c *client.Client, args []string, isNew bool) error {
	if len(args) > 0 && strings.EqualFold(args[0], "reservation") {
		args = args[1:]
	}
	set, order, err := settings(args)
	if err != nil {
		return err
	}
	req := &apiv1.SetReservationRequest{Name: set["reservationname"], OnlyNew: isNew, OnlyChange: !isNew}
	if req.Name == "" {
		req.Name = set["reservation"]
	}
	if req.Name == "" && isNew {
		req.Name = "resv_" + strconv.FormatInt(e.Now().Unix(), 10)
	}
	for _, key := range order {
		if err := reserve(e, req, key, set[key]); err != nil {
			return err
		}
	}
	resp, err := client.SetReservation(ctx, c, req)
	if err != nil {
		if isNew {
			return option.Bare("Error creating the reservation: " + err.Error())
		}
		return option.Bare("Error updating the reservation: " + err.Error())
	}
	if isNew {
		e.Printf("Reservation created: %s\n", resp.GetReservation().GetName())
		return nil
	}
	e.Printf("Reservation updated.\n")
	return nil
}

func reserve(e *console.Env, req *apiv1.SetReservationRequest, key, v string) error {
	fault := option.Bare(fmt.Sprintf("Invalid %s value: %s", key, v))
	switch key {
	case "reservationname", "reservation":
	case "starttime", "endtime":
		at, ok := slurm.ParseNext(v, e.Now())
		if !ok {
			return fault
		}
		if key == "starttime" {
			req.Start = timestamppb.New(at)
		} else {
			req.End = timestamppb.New(at)
		}
	case "duration":
		d, limited, err := sbatch.ParseTime(v)
		if err != nil || !limited {
			return fault
		}
		req.Duration = durationpb.New(d)
	case "nodes":
		req.Nodes = &v
	case "nodecnt", "nodecount":
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			return fault
		}
		req.NodeCount = uint32(n)
	case "tres":
		n, ok := strings.CutPrefix(v, "gres/gpu=")
		count, err := strconv.ParseUint(n, 10, 16)
		if !ok || err != nil {
			return fault
		}
		req.GpuCount = uint32(count)
	case "features":
		req.Features = v
	case "partitionname", "partition":
		req.Partition = v
	case "users", "user":
		req.SetUsers, req.Users = true, option.List(v)
	case "accounts", "account":
		req.SetAccounts, req.Accounts = true, option.List(v)
	case "flags":
		return reserveFlags(req, v)
	default:
		return option.Bare("Update of this parameter is not supported: " + key + "=" + v + "\nRequest aborted")
	}
	return nil
}

func reserveFlags(req *apiv1.SetReservationRequest, v string) error {
	for _, f := range option.List(strings.ToLower(v)) {
		switch f {
		case "maint":
			req.Maint = new(true)
		case "ignore_jobs":
			req.IgnoreJobs = true
		case "overlap":
			req.Overlap = true
		case "daily", "weekly":
			req.Repeat = &f
		case "spec_nodes", "all_nodes":
		default:
			return option.Bare("Error parsing flags " + f + ".\nSupported are maint, ignore_jobs, overlap, daily and weekly.")
		}
	}
	return nil
}

func runScontrolDelete(ctx context.Context, c *client.Client, args []string) error {
	for _, a := range args {
		key, name, ok := strings.Cut(a, "=")
		if !ok || !strings.HasPrefix(strings.ToLower(key), "reservation") {
			return option.Bare("Invalid option for delete: " + a)
		}
		if err := client.RemoveReservation(ctx, c, name); err != nil {
			return option.Bare("slurm_delete_reservation: " + err.Error())
		}
	}
	return nil
}
