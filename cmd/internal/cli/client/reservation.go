package client

import (
	"context"

	"github.com/berth-scheduler/berth/cmd/internal/cli/console"
	apiv1 "github.com/berth-scheduler/berth/proto/berth/api/v1"
)

// GetReservations reads reservations by name, all that are open or to come when
// names is empty.
func GetReservations(ctx context.Context, c *Client, names []string) ([]*apiv1.Reservation, error) {
	var resp *apiv1.ListReservationsResponse
	err := c.Cluster(ctx, Reads, func(ctx context.Context, s ClusterService) (err error) {
		resp, err = s.ListReservations(ctx, &apiv1.ListReservationsRequest{Names: names})
		return err
	})
	return resp.GetReservations(), err
}

// SetReservation makes or changes a reservation.
func SetReservation(ctx context.Context, c *Client, req *apiv1.SetReservationRequest) (*apiv1.SetReservationResponse, error) {
	var resp *apiv1.SetReservationResponse
	err := c.Cluster(ctx, Changes, func(ctx context.Context, s ClusterService) (err error) {
		resp, err = s.SetReservation(ctx, req)
		return err
	})
	if err != nil {
		err = console.UnknownChange(err, "See berth reservation list.")
	}
	return resp, err
}

// RemoveReservation forgets a reservation.
func RemoveReservation(ctx context.Context, c *Client, name string) error {
	err := c.Cluster(ctx, Changes, func(ctx context.Context, s ClusterService) error {
		_, err := s.RemoveReservation(ctx, &apiv1.RemoveReservationRequest{Name: name})
		return err
	})
	if err != nil {
		return console.UnknownChange(err, "Removing again is safe.")
	}
	return nil
}

// UpdateJob changes what a job asked for.
func UpdateJob(ctx context.Context, c *Client, req *apiv1.UpdateJobRequest) (*apiv1.UpdateJobResponse, error) {
	var resp *apiv1.UpdateJobResponse
	err := c.Jobs(ctx, Changes, func(ctx context.Context, s JobService) (err error) {
		resp, err = s.UpdateJob(ctx, req)
		return err
	})
	if err != nil {
		err = console.UnknownChange(err, "Changing again is safe.")
	}
	return resp, err
}
